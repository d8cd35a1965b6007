package httpapi

import (
	"bytes"
	"encoding/json"
	"fmt"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// Encode returns a message as a line of JSON, with its fields in the order of their
// numbers. Unlike protojson it encodes 64-bit numbers as JSON numbers. In this API they are
// below 2^53, so every reader gets them exactly.
func Encode(m proto.Message) []byte {
	var out bytes.Buffer
	writeMessage(&out, m.ProtoReflect())
	out.WriteByte('\n')
	return out.Bytes()
}

func writeMessage(out *bytes.Buffer, m protoreflect.Message) {
	out.WriteByte('{')
	fields := m.Descriptor().Fields()
	separator := ""
	for i := range fields.Len() {
		f := fields.Get(i)
		if !m.Has(f) && !SpelledOut(f) {
			continue
		}
		fmt.Fprintf(out, "%s%q:", separator, f.JSONName())
		separator = ","
		writeField(out, f, m.Get(f))
	}
	out.WriteByte('}')
}

// SpelledOut reports whether a field is written even if it is false or empty: "not released" and
// "no holders" are answers. Texts and numbers that are not there have no value.
func SpelledOut(f protoreflect.FieldDescriptor) bool {
	return f.Kind() == protoreflect.BoolKind && !f.HasPresence() || f.IsList()
}

func writeField(out *bytes.Buffer, f protoreflect.FieldDescriptor, v protoreflect.Value) {
	switch {
	case f.IsMap(): // to texts or numbers
		values := map[string]any{}
		v.Map().Range(func(key protoreflect.MapKey, value protoreflect.Value) bool {
			values[key.String()] = value.Interface()
			return true
		})
		writeValue(out, values)
	case f.IsList():
		out.WriteByte('[')
		for i := range v.List().Len() {
			if i > 0 {
				out.WriteByte(',')
			}
			writeValue(out, v.List().Get(i).Interface())
		}
		out.WriteByte(']')
	default:
		writeValue(out, v.Interface())
	}
}

func writeValue(out *bytes.Buffer, v any) {
	if m, ok := v.(protoreflect.Message); ok {
		writeMessage(out, m)
		return
	}
	encoder := json.NewEncoder(out)
	encoder.SetEscapeHTML(false)
	_ = encoder.Encode(v)       // texts, numbers and booleans have an encoding
	out.Truncate(out.Len() - 1) // the line feed
}
