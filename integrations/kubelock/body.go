package kubelock

import (
	"encoding/json"
	"fmt"
)

// object is a JSON object whose values are not decoded.
type object map[string]json.RawMessage

// edit changes the object at a path of nested objects in a JSON body, and keeps the rest.
// Missing objects are added.
func edit(body []byte, change func(object) error, path ...string) ([]byte, error) {
	outer := object{}
	if len(body) > 0 {
		if err := json.Unmarshal(body, &outer); err != nil {
			return nil, fmt.Errorf("%w: its body is not a JSON object, %w; send JSON", ErrNoToken, err)
		}
	}
	if outer == nil {
		return nil, fmt.Errorf("%w: its body removes all metadata or annotations; name those to remove", ErrNoToken)
	}
	if _, ok := outer["$patch"]; ok {
		return nil, fmt.Errorf("%w: $patch at the metadata can remove it; use a merge patch", ErrNoToken)
	}
	if len(path) == 0 {
		if err := change(outer); err != nil {
			return nil, err
		}
		return json.Marshal(outer)
	}
	inner, err := edit(outer[path[0]], change, path[1:]...)
	if err != nil {
		return nil, err
	}
	outer[path[0]] = inner
	return json.Marshal(outer)
}

// set sets a string.
func (o object) set(key, value string) (err error) {
	o[key], err = json.Marshal(value)
	return err
}

// setVersion makes a write conditional on the resourceVersion that version returns. Its
// argument is the one in the object, or "".
func setVersion(version func(present string) (string, error)) func(object) error {
	return func(o object) error {
		var present string
		if raw, ok := o["resourceVersion"]; ok {
			if err := json.Unmarshal(raw, &present); err != nil {
				return fmt.Errorf("read the resourceVersion in the body: %w", err)
			}
		}
		next, err := version(present)
		if err != nil {
			return err
		}
		return o.set("resourceVersion", next)
	}
}

// addVersion does the same for a JSON patch.
func addVersion(body []byte, version func(present string) (string, error)) ([]byte, error) {
	var steps []json.RawMessage
	if err := json.Unmarshal(body, &steps); err != nil {
		return nil, fmt.Errorf("%w: its body is not a JSON patch, %w", ErrNoToken, err)
	}
	next, err := version("")
	if err != nil {
		return nil, err
	}
	step, err := json.Marshal(map[string]string{"op": "replace", "path": "/metadata/resourceVersion", "value": next})
	if err != nil {
		return nil, err
	}
	return json.Marshal(append(steps, step))
}
