// Package wire converts the types of package engine to messages of the API and back.
// Client and server share it, so that an error means the same on both sides. Its
// table of errors has the HTTP status, the exit code and the hint of every error.
//
// It does not validate requests: a server validates what it decodes.
package wire
