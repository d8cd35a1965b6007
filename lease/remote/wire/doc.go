// Package wire turns what package lease knows into messages of the API, and
// back. Client and server share it, so that an error means the same on both
// sides.
//
// It promises nothing about who may send what: a server validates what it
// decodes.
package wire
