// Package api has the description of the HTTP API in the OpenAPI format. The protocol itself is
// in package leased/v1.
package api

import _ "embed" // for OpenAPI

// OpenAPI is the file openapi.yaml, which leased/v1/generate.sh derives from the protocol. Members
// serve it at /openapi.yaml.
//
//go:embed openapi.yaml
var OpenAPI []byte
