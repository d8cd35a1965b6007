// Package leasedv1 is the API of leased as protobuf, and what is generated from
// it. The comments in the .proto files are the reference; docs/API.md shows each
// call.
//
// The generated files are committed, so that nobody needs protoc to build. After
// a change run go generate in this folder, with protoc 3.21 or later installed.
package leasedv1

//go:generate ./generate.sh
