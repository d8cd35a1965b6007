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
		if object[name] == nil { // the same as no field
			continue
		}
		if text := wrongValue(f, f.IsList(), object[name], path+name); text != "" {
			return text
		}
	}
	return ""
}

// wrongValue describes a value that a field, or an element of its list, cannot have.
func wrongValue(f protoreflect.FieldDescriptor, isList bool, value any, path string) string {
	list, _ := value.([]any)
	object, isObject := value.(map[string]any)
	want := typeOf(f, isList)
	switch {
	case f.IsMap():
		for _, text := range object {
			_, isText := text.(string)
			isObject = isObject && isText
		}
		if isObject {
			return ""
		}
	case typeName(value) != want:
	case isList:
		for i, element := range list {
			if text := wrongValue(f, false, element, fmt.Sprintf("%s[%d]", path, i)); text != "" {
				return text
			}
		}
		return ""
	case isObject:
		return wrongField(f.Message(), object, path+".")
	default:
		return ""
	}
	return fmt.Sprintf("field %q must be %s, not %s", path, want, typeName(value))
}

// typeOf returns the name of the JSON type of a field.
func typeOf(f protoreflect.FieldDescriptor, isList bool) string {
	switch {
	case f.IsMap(): // all maps of this API have texts
		return "an object of strings"
	case isList:
		return "a list"
	}
	switch f.Kind() {
	case protoreflect.MessageKind:
		return "an object"
	case protoreflect.BoolKind:
		return "true or false"
	case protoreflect.StringKind, protoreflect.BytesKind:
		return "a string"
	}
	return "a number"
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
