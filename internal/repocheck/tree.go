// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package repocheck

import (
	"cmp"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/scanner"
	"go/token"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"
)

// Tree is the content of a repository.
type Tree struct {
	Module string // module path of the go.mod in the root directory
	Files  []File // sorted by path

	fset        *token.FileSet
	parseErrors []Complaint
}

// File is one file of a [Tree].
type File struct {
	Path   string    // slash-separated, relative to the repository
	Text   string    // the whole content
	Go     *ast.File // nil for test data and files that are not Go or do not parse
	Nested bool      // is in a module below the root
}

// Dir returns the directory that contains the file, relative to the repository. It is "." for the root.
func (f *File) Dir() string { return path.Dir(f.Path) }

// IsTest reports whether f is a Go test file.
func (f *File) IsTest() bool { return strings.HasSuffix(f.Path, "_test.go") }

// IsMain reports whether f belongs to a command, which means that its package is main.
func (f *File) IsMain() bool { return f.Go != nil && f.Go.Name.Name == "main" }

// Complaint is one violation of a rule.
type Complaint struct {
	Path string // a file, or the directory of a package
	Line int    // zero: not one line
	Text string
}

// String returns the violation as "path:line: text".
func (c Complaint) String() string {
	if c.Line == 0 {
		return c.Path + ": " + c.Text
	}
	return fmt.Sprintf("%s:%d: %s", c.Path, c.Line, c.Text)
}

// Load reads all files of the repository except .git and .lab, and parses the Go files. Load does not return syntax errors:
// the first of [Rules] reports them.
func Load(fsys fs.FS) (*Tree, error) {
	t := &Tree{fset: token.NewFileSet()}
	var nested []string
	err := fs.WalkDir(fsys, ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == ".git" || d.Name() == ".lab"):
			return fs.SkipDir
		case !d.Type().IsRegular():
			return nil
		}
		text, err := fs.ReadFile(fsys, name)
		if err != nil {
			return err
		}
		if d.Name() == "go.mod" && name != "go.mod" {
			nested = append(nested, path.Dir(name)+"/")
		}
		t.Files = append(t.Files, t.parseFile(name, string(text)))
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read repository: %w", err)
	}
	for i := range t.Files {
		f := &t.Files[i]
		f.Nested = slices.ContainsFunc(nested, func(dir string) bool { return strings.HasPrefix(f.Path, dir) })
		if f.Path == "go.mod" {
			t.Module = modulePath(f.Text)
		}
	}
	slices.SortFunc(t.Files, func(a, b File) int { return cmp.Compare(a.Path, b.Path) })
	return t, nil
}

// parseFile returns the File with this path and content, which it parses if it is Go source. It adds a syntax error to
// t.parseErrors.
func (t *Tree) parseFile(name, text string) File {
	f := File{Path: name, Text: text}
	if !strings.HasSuffix(name, ".go") || slices.Contains(strings.Split(name, "/"), "testdata") {
		return f
	}
	parsed, err := parser.ParseFile(t.fset, name, text, parser.ParseComments|parser.SkipObjectResolution)
	if list, ok := errors.AsType[scanner.ErrorList](err); ok {
		t.parseErrors = append(t.parseErrors, Complaint{name, list[0].Pos.Line, list[0].Msg})
		return f
	}
	f.Go = parsed
	return f
}

// modulePath returns the module path in the content of a go.mod file, or "" if it contains none.
func modulePath(gomod string) string {
	m := regexp.MustCompile(`(?m)^module\s+(\S+)`).FindStringSubmatch(gomod)
	if m == nil {
		return ""
	}
	return m[1]
}

// Packages returns the sorted directories of all public packages except the root.
func (t *Tree) Packages() (dirs []string) {
	for f := range t.goFiles(func(f *File) bool { return !f.IsTest() && !f.IsMain() && !f.Nested }) {
		if dir := f.Dir(); dir != "." && !slices.Contains(strings.Split(dir, "/"), "internal") {
			dirs = append(dirs, dir)
		}
	}
	slices.Sort(dirs)
	return slices.Compact(dirs)
}

// goFiles yields each Go file of t for which keep returns true. It omits files with syntax errors.
func (t *Tree) goFiles(keep func(*File) bool) func(yield func(*File) bool) {
	return func(yield func(*File) bool) {
		for i := range t.Files {
			if f := &t.Files[i]; f.Go != nil && keep(f) && !yield(f) {
				return
			}
		}
	}
}

// complaintAt returns a Complaint about the position pos in f. Its text is format with args.
func (t *Tree) complaintAt(f *File, pos token.Pos, format string, args ...any) Complaint {
	return Complaint{Path: f.Path, Line: t.fset.Position(pos).Line, Text: fmt.Sprintf(format, args...)}
}
