package redisgate

import (
	"fmt"
	"strings"

	"github.com/leased-project/leased/fencing"
)

// markPrefix is how the key of every mark begins.
const markPrefix = "leased:mark:"

// tagEscaper keeps braces, which end a hash tag, out of it. It escapes its own
// sign too, so that two resources never have one tag.
var tagEscaper = strings.NewReplacer("%", "%25", "{", "%7B", "}", "%7D")

// tag is what the keys of the resource are hashed by.
func tag(resource fencing.Resource) string {
	if strings.ContainsAny(string(resource), "%{}") {
		return tagEscaper.Replace(string(resource))
	}
	return string(resource)
}

// Key names a key of the resource, in the slot of its mark: Key("orders/42",
// ":lines") is "{orders/42}:lines".
func Key(resource fencing.Resource, suffix string) string {
	return "{" + tag(resource) + "}" + suffix
}

// MarkKey names the key that holds the mark of the resource, for inspection.
func MarkKey(resource fencing.Resource) string {
	return markPrefix + "{" + tag(resource) + "}"
}

// hashed is the part of the key that decides its slot, by the rule of Redis
// Cluster: what is between the first { and the next }, if that is not empty.
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
		return fmt.Errorf("the key %q is where a mark lives; only the gate writes there", key)
	}
	if !anySlot && hashed(key) != tag(resource) {
		return fmt.Errorf("the key %q is not in the slot of %q; name it with redisgate.Key, or use the name of the resource", key, string(resource))
	}
	return nil
}
