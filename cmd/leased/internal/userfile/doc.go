// Package userfile reads and writes the file with the users of the API: a list of
// names, each with the hashes of its secrets or the name of a certificate, and with rules.
//
// The file does not contain the secrets: a lost secret cannot be recovered, only
// replaced. A member does not notice a change of the file: send it SIGHUP.
package userfile
