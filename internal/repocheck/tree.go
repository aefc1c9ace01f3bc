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
	Module string // the module path of the go.mod at the top
	Files  []File // in the order of their paths

	fset   *token.FileSet
	broken []Complaint
}

// File is one file of a [Tree].
type File struct {
	Path   string    // slash-separated, from the top of the repository
	Text   string    // the whole content
	Go     *ast.File // nil for what is not Go, is test data, or does not parse
	Nested bool      // belongs to a module below the one at the top
}

// Dir returns the directory of the file, "." for the top.
func (f *File) Dir() string { return path.Dir(f.Path) }

// Test reports whether the file is compiled for tests only.
func (f *File) Test() bool { return strings.HasSuffix(f.Path, "_test.go") }

// Main reports whether the file belongs to a command.
func (f *File) Main() bool { return f.Go != nil && f.Go.Name.Name == "main" }

// Complaint is one place where a rule is broken.
type Complaint struct {
	Path string // a file, or a directory for what concerns a package
	Line int    // zero when no single line is to blame
	Text string
}

// String returns "path:line: text".
func (c Complaint) String() string {
	if c.Line == 0 {
		return c.Path + ": " + c.Text
	}
	return fmt.Sprintf("%s:%d: %s", c.Path, c.Line, c.Text)
}

// Load reads a repository. What Git and the test lab keep for themselves (.git, .lab) is left out. A Go file that
// does not parse is no error but a complaint of the first of [Rules].
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
		t.Files = append(t.Files, t.parse(name, string(text)))
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

// parse makes a File of a path and its content.
func (t *Tree) parse(name, text string) File {
	f := File{Path: name, Text: text}
	if !strings.HasSuffix(name, ".go") || slices.Contains(strings.Split(name, "/"), "testdata") {
		return f
	}
	parsed, err := parser.ParseFile(t.fset, name, text, parser.ParseComments|parser.SkipObjectResolution)
	if list, ok := errors.AsType[scanner.ErrorList](err); ok {
		t.broken = append(t.broken, Complaint{name, list[0].Pos.Line, list[0].Msg})
		return f
	}
	f.Go = parsed
	return f
}

// modulePath returns the path in the module line of a go.mod, or "".
func modulePath(gomod string) string {
	m := regexp.MustCompile(`(?m)^module\s+(\S+)`).FindStringSubmatch(gomod)
	if m == nil {
		return ""
	}
	return m[1]
}

// Packages returns the directories of the packages that others can import, but for the one at the top.
func (t *Tree) Packages() (dirs []string) {
	for f := range t.source(func(f *File) bool { return !f.Test() && !f.Main() && !f.Nested }) {
		if dir := f.Dir(); dir != "." && !slices.Contains(strings.Split(dir, "/"), "internal") {
			dirs = append(dirs, dir)
		}
	}
	slices.Sort(dirs)
	return slices.Compact(dirs)
}

// source yields the Go files that are parsed and that keep accepts.
func (t *Tree) source(keep func(*File) bool) func(yield func(*File) bool) {
	return func(yield func(*File) bool) {
		for i := range t.Files {
			if f := &t.Files[i]; f.Go != nil && keep(f) && !yield(f) {
				return
			}
		}
	}
}

// at makes a complaint about a place in a Go file.
func (t *Tree) at(f *File, pos token.Pos, format string, args ...any) Complaint {
	return Complaint{Path: f.Path, Line: t.fset.Position(pos).Line, Text: fmt.Sprintf(format, args...)}
}
