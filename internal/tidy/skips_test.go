package tidy

import (
	"go/ast"
	"go/token"
	"slices"
)

var skipsRule = rule{
	name: "skips",
	why: "A skipped test passes and proves nothing. Fail and say what to install; scripts/install-test-deps " +
		"installs it.",
	check:   checkSkips,
	samples: skipsSamples,
}

// checkSkips finds calls of Skip on a test. Other types may have a Skip too, such as
// rapid's T, where it discards one generated case. So a parameter whose declared
// type is not from package testing is allowed. The one skip is that of make quick.
func checkSkips(t *tree) ([]breach, error) {
	var breaches []breach
	for _, f := range t.code {
		if !f.isTest() || f.path == "internal/testserver/short.go" {
			continue
		}
		var around []ast.Node // from the file down to the node
		ast.Inspect(f.syntax, func(n ast.Node) bool {
			if n == nil {
				around = around[:len(around)-1]
				return true
			}
			if s, ok := n.(*ast.SelectorExpr); ok && slices.Contains([]string{"Skip", "Skipf", "SkipNow"}, s.Sel.Name) &&
				isTestValue(s.X, around) {
				breaches = append(breaches, f.breach(s.Pos(), "%s in a test", s.Sel.Name))
			}
			around = append(around, n)
			return true
		})
		f.uses("testing", func(pos token.Pos, name string) {
			if name == "Short" {
				breaches = append(breaches, f.breach(pos, "testing.Short is a hidden skip"))
			}
		})
	}
	return breaches, nil
}

// isTestValue reports whether x may be a *testing.T, *testing.B or testing.TB. It is
// assumed to be one unless the innermost parameter of that name has another type.
func isTestValue(x ast.Expr, around []ast.Node) bool {
	name, ok := x.(*ast.Ident)
	if !ok {
		return true
	}
	for _, n := range slices.Backward(around) {
		var params *ast.FieldList
		switch fn := n.(type) {
		case *ast.FuncDecl:
			params = fn.Type.Params
		case *ast.FuncLit:
			params = fn.Type.Params
		default:
			continue
		}
		for _, field := range params.List {
			if slices.ContainsFunc(field.Names, func(id *ast.Ident) bool { return id.Name == name.Name }) {
				return isTestType(field.Type)
			}
		}
	}
	return true
}

func isTestType(x ast.Expr) bool {
	if star, ok := x.(*ast.StarExpr); ok {
		x = star.X
	}
	s, ok := x.(*ast.SelectorExpr)
	if !ok {
		return true
	}
	pkg, ok := s.X.(*ast.Ident)
	return !ok || pkg.Name == "testing"
}

var skipsSamples = []sample{
	{
		name: "no skip of a test",
		files: map[string]string{
			"lease/a_test.go": lines(`package lease`, `import ("testing"; "pgregory.net/rapid")`,
				`func TestA(t *testing.T) { rapid.Check(t, func(t *rapid.T) { t.Skip("an invalid case") }) }`,
				`func read(d *json.Decoder) { d.Skip() }`),
			"lease/a.go": lines(`package lease`, `func f(s interface{ Skip() }) { s.Skip() }`),
		},
	},
	{
		name: "a skipped test",
		files: map[string]string{
			"lease/a_test.go": lines(`package lease`, `import ("testing"; "pgregory.net/rapid")`,
				`func TestA(t *testing.T) { t.Skip("no server") }`,
				`func TestB(t *testing.T) { rapid.Check(t, func(r *rapid.T) { t.SkipNow() }) }`,
				`func BenchmarkC(b *testing.B) { b.Run("", func(b *testing.B) { b.Skipf("") }) }`,
				`func (s suite) TestD() { s.t.Skip() }`,
				`func TestE(t *testing.T) { if testing.Short() { return } }`),
			"lease/leasetest/a.go": lines(`package leasetest`, `import "testing"`, `func need(tb testing.TB) { tb.Skip() }`),
		},
		want: []string{
			"lease/a_test.go:3 Skip in a test",
			"lease/a_test.go:4 SkipNow in a test",
			"lease/a_test.go:5 Skipf in a test",
			"lease/a_test.go:6 Skip in a test",
			"lease/a_test.go:7 testing.Short",
			"lease/leasetest/a.go:3 Skip in a test",
		},
	},
}
