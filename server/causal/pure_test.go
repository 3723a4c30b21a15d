package causal

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"strings"
	"testing"
)

// TestPure: a node has no time, no chance, no goroutine and no file of its own, and goes through no map where order could be seen: what it
// does follows from its calls and its store alone.
func TestPure(t *testing.T) {
	files, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	read := 0
	for _, file := range files {
		name := file.Name()
		if !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		read++
		for _, i := range f.Imports {
			switch path := strings.Trim(i.Path.Value, `"`); path {
			case "encoding/binary", "errors", "fmt", "math", "slices", "bytes", "strings", "github.com/google/uuid", "kaas/codec/parsley":
			case "kaas/engine/state":
				if name != "store.go" {
					t.Errorf("%s imports %s", name, path)
				}
			default:
				t.Errorf("%s imports %s", name, path)
			}
		}
		ast.Inspect(f, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.GoStmt, *ast.SelectStmt, *ast.ChanType:
				t.Errorf("%s: %T", name, n)
			case *ast.RangeStmt:
				if s, ok := n.X.(*ast.SelectorExpr); ok && (s.Sel.Name == "byID" || s.Sel.Name == "sinkByID" || s.Sel.Name == "channels" && isFormer(s.X)) {
					t.Errorf("%s goes through a map", name)
				}
			}
			return true
		})
	}
	if read < 10 {
		t.Errorf("only %d files", read)
	}
}

// isFormer says whether x is the state of the life before, whose channels are a map.
func isFormer(x ast.Expr) bool {
	switch x := x.(type) {
	case *ast.SelectorExpr:
		return x.Sel.Name == "former"
	case *ast.Ident:
		return x.Name == "f"
	}
	return false
}
