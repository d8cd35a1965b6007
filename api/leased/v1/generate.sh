#!/bin/sh
# Generate the Go code of the API, and its description for HTTP clients. This needs protoc (Debian: protobuf-compiler);
# the script builds the two plugins in the versions of tools/go.mod.
set -eu
cd "$(dirname "$0")/../../.."
plugins=$(mktemp -d)
trap 'rm -rf "$plugins"' EXIT
go build -modfile=tools/go.mod -o "$plugins/" \
	google.golang.org/protobuf/cmd/protoc-gen-go google.golang.org/grpc/cmd/protoc-gen-go-grpc
PATH="$plugins:$PATH" protoc -I api \
	--go_out=api --go_opt=paths=source_relative \
	--go-grpc_out=api --go-grpc_opt=paths=source_relative \
	leased/v1/lease.proto leased/v1/admin.proto
protoc -I api --include_source_info -o "$plugins/api.pb" leased/v1/lease.proto leased/v1/admin.proto
[ -f api/leased/v1/openapi.yaml ] || : >api/leased/v1/openapi.yaml
go run ./internal/openapi "$plugins/api.pb" >"$plugins/openapi.yaml"
mv "$plugins/openapi.yaml" api/leased/v1/openapi.yaml
