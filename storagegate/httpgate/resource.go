package httpgate

import (
	"errors"
	"fmt"
	"net/http"
	"path"
	"strings"

	"github.com/leased-project/leased/fencing"
)

// ResourceFunc returns the name of the resource that a request writes to. Two
// requests that can change the same data must return the same name.
// callgate.ErrUngated lets the request pass without a check; any other error
// refuses it with status 400.
type ResourceFunc func(r *http.Request) (fencing.Resource, error)

// FromHeader takes the resource from a request header, which must be present
// exactly once. A client that can choose the header freely can bypass the fence,
// so use it only for callers that are trusted to name what they write.
func FromHeader(name string) ResourceFunc {
	return func(r *http.Request) (fencing.Resource, error) {
		values := r.Header.Values(name)
		if len(values) != 1 {
			return "", fmt.Errorf("%w: the request has %d %s headers, send one", fencing.ErrInvalidResource, len(values), name)
		}
		return fencing.ParseResource(values[0])
	}
}

// FromPath takes the resource from the path of the request. A rule is
// "PATTERN=NAME", such as "/orders/{id}/{rest...}=orders/{id}": {id} matches one
// segment, {rest...} at the end matches zero or more segments, and NAME can use
// both. The first matching rule names the resource. A request that matches no
// rule is refused.
//
// A path that services may interpret in more than one way is refused: one with
// "//", "..", an encoded slash, a trailing slash, a semicolon, a backslash, or a
// space or dot at the end of a segment.
func FromPath(rules ...string) (ResourceFunc, error) {
	if len(rules) == 0 {
		return nil, errors.New("no path rule; add one such as /orders/{id}=orders/{id}")
	}
	parsed := make([]pathRule, len(rules))
	for i, text := range rules {
		rule, err := parsePathRule(text)
		if err != nil {
			return nil, fmt.Errorf("parse the path rule %q: %w", text, err)
		}
		parsed[i] = rule
	}
	return func(r *http.Request) (fencing.Resource, error) {
		if err := plainPath(r); err != nil {
			return "", err
		}
		segments := strings.Split(r.URL.Path[1:], "/")
		for _, rule := range parsed {
			if values, ok := rule.match(segments); ok {
				return fencing.ParseResource(rule.fill(values))
			}
		}
		return "", fmt.Errorf("%w: no path rule matches %.200q", fencing.ErrInvalidResource, r.URL.Path)
	}, nil
}

func plainPath(r *http.Request) error {
	p := r.URL.Path
	encodedSlash := strings.Contains(strings.ToLower(r.URL.EscapedPath()), "%2f")
	if p == "" || p[0] != '/' || path.Clean(p) != p || encodedSlash || ambiguous(p) {
		return fmt.Errorf("%w: the path %.200q is ambiguous; send it without empty, dot or encoded segments, "+
			"semicolons, backslashes, and spaces or dots at the end of a segment",
			fencing.ErrInvalidResource, r.URL.EscapedPath())
	}
	return nil
}

// ambiguous reports whether some services would drop a part of the path. They
// drop the text after a semicolon, or a dot or space at the end of a segment.
// Some treat a backslash as a slash.
func ambiguous(p string) bool {
	if strings.ContainsAny(p, `;\`) {
		return true
	}
	for segment := range strings.SplitSeq(p, "/") {
		if strings.HasSuffix(segment, " ") || strings.HasSuffix(segment, ".") {
			return true
		}
	}
	return false
}

// pathRule is a parsed "PATTERN=NAME".
type pathRule struct {
	segments []string // a literal, or "{name}"
	rest     string   // "{name}" if the pattern ends in "{name...}"
	name     string   // with {name} in it
}

func parsePathRule(text string) (pathRule, error) {
	pattern, name, ok := strings.Cut(text, "=")
	if !ok || name == "" {
		return pathRule{}, errors.New("the name is missing; write PATTERN=NAME, such as /orders/{id}=orders/{id}")
	}
	if pattern == "" || pattern[0] != '/' || path.Clean(pattern) != pattern {
		return pathRule{}, errors.New("the pattern must start with / and must not contain empty, . or .. segments")
	}
	rule := pathRule{name: name}
	known := map[string]bool{}
	segments := strings.Split(pattern[1:], "/")
	for i, segment := range segments {
		wildcard, rest := strings.HasPrefix(segment, "{"), strings.HasSuffix(segment, "...}")
		switch {
		case wildcard != strings.HasSuffix(segment, "}") || strings.Count(segment, "{") > 1:
			return pathRule{}, fmt.Errorf("the segment %q must be a literal or one {name}", segment)
		case rest && i < len(segments)-1:
			return pathRule{}, fmt.Errorf("%s must come last", segment)
		case rest:
			rule.rest = strings.TrimSuffix(segment, "...}") + "}"
			known[rule.rest] = true
			continue
		case wildcard && known[segment]:
			return pathRule{}, fmt.Errorf("%s appears twice", segment)
		case wildcard:
			known[segment] = true
		}
		rule.segments = append(rule.segments, segment)
	}
	for _, part := range strings.SplitAfter(name, "}") {
		if i := strings.IndexByte(part, '{'); i >= 0 && !known[part[i:]] {
			return pathRule{}, fmt.Errorf("the name uses %s, which the pattern does not have", part[i:])
		}
	}
	return rule, nil
}

func (p pathRule) match(segments []string) (values []string, ok bool) {
	if len(segments) < len(p.segments) || p.rest == "" && len(segments) > len(p.segments) {
		return nil, false
	}
	for i, want := range p.segments {
		if strings.HasPrefix(want, "{") && segments[i] != "" {
			values = append(values, want, segments[i])
		} else if want != segments[i] {
			return nil, false
		}
	}
	if p.rest != "" {
		values = append(values, p.rest, strings.Join(segments[len(p.segments):], "/"))
	}
	return values, true
}

// fill replaces each wildcard in the name by its value. It does not replace
// wildcards inside values.
func (p pathRule) fill(values []string) string {
	return strings.NewReplacer(values...).Replace(p.name)
}
