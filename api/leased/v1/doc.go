// Package leasedv1 has the protobuf API of leased and the code generated from it. The
// comments in the .proto files are the reference; docs/API.md shows each call.
//
// The generated files are committed, so a build does not need protoc. After a change
// run go generate in this folder, with protoc 3.21 or later installed.
package leasedv1

//go:generate ./generate.sh
