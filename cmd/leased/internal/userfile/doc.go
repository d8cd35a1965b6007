// Package userfile is the file that says who may call the API: a list of names,
// each with the hash of a secret.
//
// What it does not give: the secrets. A secret that was lost is replaced, not
// found again. And nothing tells a server that the file has changed: send it
// SIGHUP.
package userfile
