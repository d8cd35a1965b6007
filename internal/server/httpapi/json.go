package httpapi

import (
	"bytes"
	"encoding/json"
	"strconv"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// encode returns a message as JSON. Unlike protojson it encodes 64-bit numbers as
// JSON numbers: those of this API are below 2^53, so that every reader gets them
// exactly.
func encode(m proto.Message) ([]byte, error) {
	text, err := protojson.Marshal(m)
	if err != nil {
		return nil, err
	}
	var object map[string]json.RawMessage
	if err := json.Unmarshal(text, &object); err != nil {
		return nil, err
	}
	return writeObject(object, m.ProtoReflect().Descriptor())
}

// writeObject encodes an object with its fields in the order of their numbers.
func writeObject(object map[string]json.RawMessage, d protoreflect.MessageDescriptor) ([]byte, error) {
	var out bytes.Buffer
	out.WriteByte('{')
	fields := d.Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		value, ok := object[f.JSONName()]
		if !ok {
			continue
		}
		value, err := writeValue(value, f)
		if err != nil {
			return nil, err
		}
		if out.Len() > 1 {
			out.WriteByte(',')
		}
		out.WriteString(strconv.Quote(f.JSONName()))
		out.WriteByte(':')
		out.Write(value)
	}
	out.WriteByte('}')
	return out.Bytes(), nil
}

func writeValue(value json.RawMessage, f protoreflect.FieldDescriptor) ([]byte, error) {
	if f.IsMap() {
		var compact bytes.Buffer
		err := json.Compact(&compact, value)
		return compact.Bytes(), err
	}
	if !f.IsList() {
		return writeOne(value, f)
	}
	var list []json.RawMessage
	if err := json.Unmarshal(value, &list); err != nil {
		return nil, err
	}
	out := []byte{'['}
	for i, one := range list {
		text, err := writeOne(one, f)
		if err != nil {
			return nil, err
		}
		if i > 0 {
			out = append(out, ',')
		}
		out = append(out, text...)
	}
	return append(out, ']'), nil
}

func writeOne(value json.RawMessage, f protoreflect.FieldDescriptor) ([]byte, error) {
	switch f.Kind() {
	case protoreflect.Uint64Kind, protoreflect.Int64Kind:
		return bytes.Trim(value, `"`), nil
	case protoreflect.MessageKind:
		var object map[string]json.RawMessage
		if err := json.Unmarshal(value, &object); err != nil {
			return nil, err
		}
		return writeObject(object, f.Message())
	}
	return value, nil
}
