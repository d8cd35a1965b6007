package main

import (
	"fmt"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/leased-project/leased/internal/server/httpapi"
	"github.com/leased-project/leased/internal/wire"
)

// object is a YAML object. Its keys are written in alphabetical order.
type object = map[string]any

// document is the description under construction.
type document struct {
	paths, schemas object
}

const about = `Every call is a POST with a JSON body. Any member serves it; a follower forwards what only the leader can
serve. Durations are texts such as "10s". Numbers are below 2^53. Booleans and lists of an answer are always there;
other fields are left out if they have no value. docs/API.md shows each call with curl.`

// describe returns the description of all services.
func describe(files *protoregistry.Files) object {
	d := &document{paths: object{}, schemas: object{}}
	files.RangeFiles(func(file protoreflect.FileDescriptor) bool {
		for i := range file.Services().Len() {
			d.service(file.Services().Get(i))
		}
		return true
	})
	if found, err := files.FindDescriptorByName("leased.v1.Error"); err == nil {
		d.message(found.(protoreflect.MessageDescriptor))
	}
	code := d.schemas["Error"].(object)["properties"].(object)["code"].(object)
	code["enum"] = wire.Codes()
	return object{
		"openapi": "3.1.0",
		"info":    object{"title": "leased", "version": "v1", "description": about},
		"paths":   d.paths,
		"components": object{"schemas": d.schemas,
			"securitySchemes": object{"secret": object{"type": "http", "scheme": "bearer"}},
			"responses":       object{"Error": errorResponse()}},
		"security": []object{{}, {"secret": []string{}}},
	}
}

// errorResponse describes all errors.
func errorResponse() object {
	var table strings.Builder
	table.WriteString("The call failed. The HTTP status of each code:\n")
	for _, code := range wire.Codes() {
		fmt.Fprintf(&table, "- %s: %d\n", code, wire.StatusOf(code))
	}
	return object{"description": table.String(), "content": content("application/json", reference("Error")),
		"headers": object{
			"Retry-After": object{"description": "The seconds to wait, if a retry can help.",
				"schema": object{"type": "integer"}},
			"Leased-Leader": object{"description": "The API address of the leader, if the member knows it.",
				"schema": object{"type": "string"}}}}
}

// service describes the methods of a service, except for the session stream.
func (d *document) service(service protoreflect.ServiceDescriptor) {
	for i := range service.Methods().Len() {
		m := service.Methods().Get(i)
		if m.IsStreamingClient() && m.IsStreamingServer() {
			continue
		}
		d.paths[httpapi.ShortPath(string(m.Name()))] = object{"post": object{
			"operationId": string(m.Name()), "tags": []string{string(service.Name())}, "description": comment(m),
			"requestBody": object{"required": true, "content": d.body(m.Input(), "application/json")},
			"responses": object{"200": object{"description": "The call succeeded.",
				"content": d.body(m.Output(), answerType(m))}, "default": object{"$ref": "#/components/responses/Error"}}}}
	}
}

// answerType returns the content type of the answer of a method.
func answerType(m protoreflect.MethodDescriptor) string {
	if m.IsStreamingServer() {
		return "application/x-ndjson"
	}
	return "application/json"
}

// body describes a body with a message. Parts of a file are the file.
func (d *document) body(m protoreflect.MessageDescriptor, kind string) object {
	if m.Name() == "Chunk" {
		return content("application/octet-stream", object{"type": "string", "format": "binary"})
	}
	return content(kind, d.message(m))
}

func content(kind string, schema object) object { return object{kind: object{"schema": schema}} }

func reference(name string) object { return object{"$ref": "#/components/schemas/" + name} }

// message adds a message, and returns a reference to it.
func (d *document) message(m protoreflect.MessageDescriptor) object {
	name := string(m.Name())
	if d.schemas[name] != nil {
		return reference(name)
	}
	properties := object{}
	schema := object{"type": "object", "properties": properties, "additionalProperties": false}
	d.schemas[name] = schema
	if text := comment(m); text != "" {
		schema["description"] = text
	}
	var always []string
	for i := range m.Fields().Len() {
		f := m.Fields().Get(i)
		property := d.field(f)
		if text := comment(f); text != "" {
			property["description"] = text
		}
		properties[f.JSONName()] = property
		if httpapi.SpelledOut(f) && !strings.HasSuffix(name, "Request") {
			always = append(always, f.JSONName())
		}
	}
	if always != nil {
		schema["required"] = always
	}
	return reference(name)
}

// field describes the value of a field.
func (d *document) field(f protoreflect.FieldDescriptor) object {
	switch {
	case f.IsMap():
		return object{"type": "object", "additionalProperties": d.value(f.MapValue())}
	case f.IsList():
		return object{"type": "array", "items": d.value(f)}
	}
	return d.value(f)
}

// value describes one value of a field.
func (d *document) value(f protoreflect.FieldDescriptor) object {
	switch f.Kind() {
	case protoreflect.MessageKind:
		return d.message(f.Message())
	case protoreflect.BoolKind:
		return object{"type": "boolean"}
	case protoreflect.StringKind, protoreflect.BytesKind:
		return object{"type": "string"}
	case protoreflect.DoubleKind:
		return object{"type": "number"}
	}
	return object{"type": "integer"}
}

// comment returns the comment of a declaration.
func comment(d protoreflect.Descriptor) string {
	text := d.ParentFile().SourceLocations().ByDescriptor(d).LeadingComments
	lines := strings.Split(strings.TrimSpace(text), "\n")
	for i := range lines {
		lines[i] = strings.TrimSpace(lines[i])
	}
	return strings.Join(lines, "\n")
}
