package httpapi

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"
)

// wrongField describes the first field of a JSON object that a message does not have,
// or whose value has another type than the message requires. It returns "" if there is
// none.
func wrongField(m protoreflect.MessageDescriptor, object map[string]any, path string) string {
	for _, name := range slices.Sorted(maps.Keys(object)) {
		f := m.Fields().ByJSONName(name)
		if f == nil {
			f = m.Fields().ByName(protoreflect.Name(name))
		}
		if f == nil {
			return fmt.Sprintf("unknown field %q; the fields are %s", path+name, fieldNames(m))
		}
		if text := wrongValue(f, object[name], path+name); text != "" {
			return text
		}
	}
	return ""
}

// wrongValue describes a value that a field cannot have.
func wrongValue(f protoreflect.FieldDescriptor, value any, path string) string {
	wrong := func(want string) string {
		return fmt.Sprintf("field %q must be %s, not %s", path, want, typeName(value))
	}
	switch {
	case value == nil: // the same as no field
		return ""
	case f.IsMap(): // all maps of this API have texts
		object, ok := value.(map[string]any)
		for _, text := range object {
			_, isText := text.(string)
			ok = ok && isText
		}
		if !ok {
			return wrong("an object of strings")
		}
		return ""
	case f.IsList():
		list, ok := value.([]any)
		if !ok {
			return wrong("a list")
		}
		for i, element := range list {
			if text := wrongElement(f, element, fmt.Sprintf("%s[%d]", path, i)); text != "" {
				return text
			}
		}
		return ""
	}
	return wrongElement(f, value, path)
}

// wrongElement describes a value that a field, or an element of its list, cannot have.
func wrongElement(f protoreflect.FieldDescriptor, value any, path string) string {
	want, ok := "", false
	switch f.Kind() {
	case protoreflect.MessageKind:
		var object map[string]any
		if object, ok = value.(map[string]any); ok {
			return wrongField(f.Message(), object, path+".")
		}
		want = "an object"
	case protoreflect.BoolKind:
		_, ok = value.(bool)
		want = "true or false"
	case protoreflect.StringKind, protoreflect.BytesKind:
		_, ok = value.(string)
		want = "a string"
	default:
		_, ok = value.(float64)
		want = "a number"
	}
	if ok {
		return ""
	}
	return fmt.Sprintf("field %q must be %s, not %s", path, want, typeName(value))
}

// typeName returns the name of the JSON type of a value.
func typeName(value any) string {
	switch value.(type) {
	case nil:
		return "null"
	case string:
		return "a string"
	case bool:
		return "true or false"
	case float64:
		return "a number"
	case []any:
		return "a list"
	}
	return "an object"
}

// fieldNames lists the fields of a message.
func fieldNames(m protoreflect.MessageDescriptor) string {
	var names []string
	for i := range m.Fields().Len() {
		names = append(names, m.Fields().Get(i).JSONName())
	}
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, ", ")
}
