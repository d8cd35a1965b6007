package httpapi

import (
	"bytes"
	"encoding/json"
	"strconv"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// Encode returns a message as a line of JSON, with its fields in the order of their
// numbers. Unlike protojson it encodes 64-bit numbers as JSON numbers. In this API they are
// below 2^53, so every reader gets them exactly.
func Encode(m proto.Message) []byte {
	e := &encoder{}
	e.values = json.NewEncoder(&e.out)
	e.values.SetEscapeHTML(false)
	e.message(m.ProtoReflect())
	e.out.WriteByte('\n')
	return e.out.Bytes()
}

// encoder encodes one message.
type encoder struct {
	out    bytes.Buffer
	values *json.Encoder // writes to out
}

func (e *encoder) message(m protoreflect.Message) {
	e.out.WriteByte('{')
	fields := m.Descriptor().Fields()
	first := true
	for i := range fields.Len() {
		f := fields.Get(i)
		if !m.Has(f) && !SpelledOut(f) {
			continue
		}
		if !first {
			e.out.WriteByte(',')
		}
		first = false
		e.out.Write(strconv.AppendQuote(e.out.AvailableBuffer(), f.JSONName()))
		e.out.WriteByte(':')
		e.field(f, m.Get(f))
	}
	e.out.WriteByte('}')
}

// SpelledOut reports whether a field is written even if it is false or empty: "not released" and
// "no holders" are answers. Texts and numbers that are not there have no value.
func SpelledOut(f protoreflect.FieldDescriptor) bool {
	return f.Kind() == protoreflect.BoolKind && !f.HasPresence() || f.IsList()
}

func (e *encoder) field(f protoreflect.FieldDescriptor, v protoreflect.Value) {
	switch {
	case f.IsMap(): // to texts or numbers
		values := map[string]any{}
		v.Map().Range(func(key protoreflect.MapKey, value protoreflect.Value) bool {
			values[key.String()] = value.Interface()
			return true
		})
		e.value(values)
	case f.IsList():
		e.out.WriteByte('[')
		for i := range v.List().Len() {
			if i > 0 {
				e.out.WriteByte(',')
			}
			e.value(v.List().Get(i).Interface())
		}
		e.out.WriteByte(']')
	default:
		e.value(v.Interface())
	}
}

func (e *encoder) value(v any) {
	if m, ok := v.(protoreflect.Message); ok {
		e.message(m)
		return
	}
	_ = e.values.Encode(v)          // texts, numbers and booleans have an encoding
	e.out.Truncate(e.out.Len() - 1) // the line feed
}
