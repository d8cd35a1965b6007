package kubegate

import (
	_ "embed"
	"fmt"
	"regexp"
	"strings"
	"unicode"

	"github.com/leased-project/leased/fencing"
)

// AnnotationPrefix is what the annotations with tokens begin with. The policy compares
// all of them, so that controllers with different locks can write the same object.
const AnnotationPrefix = "fencing-token/"

//go:embed policy.yaml
var policy string

//go:embed writer.yaml
var writer string

var (
	annotationName = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$`)
	userName       = regexp.MustCompile(`^[A-Za-z0-9:._@/-]+$`)
)

// Annotation returns the annotation for the tokens of a lock. The name of the lock must
// be valid as the name of an annotation.
func Annotation(lock fencing.Resource) (string, error) {
	if !annotationName.MatchString(string(lock)) {
		return "", fmt.Errorf("%w: %q cannot be the name of an annotation; name the lock with 1 to 63 letters, digits, "+
			"'-', '_' and '.', beginning and ending with a letter or digit", fencing.ErrInvalidResource, string(lock))
	}
	return AnnotationPrefix + string(lock), nil
}

// Policy returns the YAML of the policy and its binding, for kubectl apply. For each of the
// writers, the user names of controllers such as system:serviceaccount:shop:widgets, another
// policy requires that this user creates and updates no object without a token, and
// deletes an object only with its resourceVersion as a precondition.
func Policy(rule fencing.Rule, writers ...string) (string, error) {
	if !rule.Bound().Valid() {
		return "", fmt.Errorf("%w: the bound %d on the jump is not between 1 and %d", fencing.ErrInvalidToken,
			uint64(rule.Bound()), fencing.MaxToken)
	}
	text := strings.ReplaceAll(policy, "MAX_JUMP", rule.Bound().String())
	for _, user := range writers {
		if !userName.MatchString(user) {
			return "", fmt.Errorf("%q is not the name of a user; for a service account it is "+
				"system:serviceaccount:NAMESPACE:NAME", user)
		}
		text += strings.NewReplacer("WRITER", user, "OBJECT", objectName(user)).Replace(writer)
	}
	return text, nil
}

// objectName returns a name for the policy of a user. A namespace has no dots, so service
// accounts have different names.
func objectName(user string) string {
	return strings.Trim(strings.Map(func(r rune) rune {
		switch {
		case r == ':':
			return '.'
		case strings.ContainsRune("_@/", r):
			return '-'
		}
		return unicode.ToLower(r)
	}, user), ".-")
}
