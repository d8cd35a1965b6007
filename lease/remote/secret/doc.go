// Package secret is how a caller of the API proves who it is: a long random
// string, sent with each call as "Authorization: Bearer SECRET".
//
// What it does not give: a secret is as good as the way it takes. It proves
// nothing about the service, which is what certificates are for, and whoever has
// read it is its owner. So it is sent over TLS, or to the machine itself, and
// nowhere else.
//
// A secret has nothing to do with a fencing token, which is no secret at all.
package secret
