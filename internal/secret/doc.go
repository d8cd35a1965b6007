// Package secret creates and sends the secrets that authenticate callers of the API: a
// secret is a long random string, sent with each call as "Authorization: Bearer SECRET".
//
// A secret does not authenticate the service; certificates do that. Anyone who has read
// it can use it, so it is sent only over TLS or to the machine itself.
//
// A secret is unrelated to a fencing token, which is not secret.
package secret
