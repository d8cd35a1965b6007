package redisgate

import (
	"fmt"
	"strings"

	"github.com/leased-project/leased/fencing"
)

// markPrefix is the prefix of the key of every mark.
const markPrefix = "leased:mark:"

// tagEscaper escapes braces, which delimit a hash tag, and the percent sign, so
// that two resources never have the same tag.
var tagEscaper = strings.NewReplacer("%", "%25", "{", "%7B", "}", "%7D")

// tag returns the hash tag of the resource's keys.
func tag(resource fencing.Resource) string {
	if strings.ContainsAny(string(resource), "%{}") {
		return tagEscaper.Replace(string(resource))
	}
	return string(resource)
}

// Key returns the name of a key of the resource in the slot of its mark:
// Key("orders/42", ":lines") is "{orders/42}:lines".
func Key(resource fencing.Resource, suffix string) string {
	return "{" + tag(resource) + "}" + suffix
}

// MarkKey returns the key of the resource's mark, for inspection.
func MarkKey(resource fencing.Resource) string {
	return markPrefix + "{" + tag(resource) + "}"
}

// hashed returns the part of the key that determines its slot in a Redis Cluster:
// the text between the first "{" and the next "}", unless it is empty.
func hashed(key string) string {
	if _, after, ok := strings.Cut(key, "{"); ok {
		if inside, _, ok := strings.Cut(after, "}"); ok && inside != "" {
			return inside
		}
	}
	return key
}

func checkKey(resource fencing.Resource, key string, anySlot bool) error {
	if strings.HasPrefix(key, markPrefix) {
		return fmt.Errorf("the key %q is reserved for a mark; use another key", key)
	}
	if !anySlot && hashed(key) != tag(resource) {
		return fmt.Errorf("the key %q is not in the slot of %q; name it with redisgate.Key, or use the name of the resource",
			key, string(resource))
	}
	return nil
}
