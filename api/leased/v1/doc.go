// Package leasedv1 has the protobuf API of leased, the code generated from it, and the
// description of the API over HTTP. The comments in the .proto files are the reference;
// docs/API.md shows each call.
//
// The generated files are committed, so a build does not need protoc. After a change
// run go generate in this folder, with protoc 3.21 or later installed.
package leasedv1

import _ "embed" // for OpenAPI

//go:generate ./generate.sh

// OpenAPI describes the HTTP API in the OpenAPI format. It is the file openapi.yaml, which
// generate.sh derives from the protocol. Members serve it at /openapi.yaml.
//
//go:embed openapi.yaml
var OpenAPI []byte
