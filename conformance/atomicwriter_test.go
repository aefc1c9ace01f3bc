// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package conformance_test

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	volumeutil "k8s.io/kubernetes/pkg/volume/util"

	"github.com/seed81659283/nodeagent/conformance"
	"github.com/seed81659283/nodeagent/volume/atomicwriter"
)

// Both writers leave the same directory content after each of several writes of generated payloads.
func TestAtomicWriter(t *testing.T) { atomicWrites.Run(t, flags.AtMost(2_000)) } // each input has some twenty files
func FuzzAtomicWriter(f *testing.F) { fuzz(f, atomicWrites) }

// series are payloads that are written to one directory in order.
type series []map[string]projected

// projected is a file of a payload.
type projected struct {
	Content string
	Mode    uint32
	Owner   *int64
}

// written is the content of a directory after a write.
type written struct {
	Refused bool
	Perms   int // how often the permissions callback ran
	Data    map[string]string
	Links   map[string]string
	Debris  int // dangling links of the writer
}

var atomicWrites = conformance.Comparison[series, []written]{
	Make:    newPayloads,
	Kubelet: func(in series) []written { return writeAll(in, kubeletWrite) },
	Ours:    func(in series) []written { return writeAll(in, ourWrite) },
	Exceptions: []conformance.Exception[series, []written]{{
		Name:   "names of the writer",
		Reason: "the kubelet accepts a path that equals one of the writer's own names after its first element is removed and it is cleaned",
		When: func(in series) bool {
			return in.has(func(name string) bool { return strings.HasPrefix(path.Clean(name), "..") })
		},
	}, {
		Name:   "two names of one file",
		Reason: "the kubelet writes one of the two files, at random",
		When:   series.twoNames,
	}, {
		Name:   "a file in place of a directory",
		Reason: "the kubelet fails to read the old version, at this write and all later ones",
		When:   series.otherKind,
	}, {
		Name:   "debris of a failed write",
		Reason: "the kubelet does not remove them",
		When:   func(series) bool { return true },
		Want: func(_ series, kubelet []written) []written {
			for i := range kubelet {
				kubelet[i].Debris = 0
			}
			return kubelet
		},
	}},
}

func (in series) has(is func(name string) bool) bool {
	for _, payload := range in {
		for name := range payload {
			if is(name) {
				return true
			}
		}
	}
	return false
}

// twoNames reports whether a payload contains one file under two paths.
func (in series) twoNames() bool {
	for _, payload := range in {
		clean := map[string]bool{}
		for name := range payload {
			clean[path.Clean(name)] = true
		}
		if len(clean) < len(payload) {
			return true
		}
	}
	return false
}

// otherKind reports whether a path is a file in one payload and a directory in another.
func (in series) otherKind() bool {
	return in.has(func(name string) bool {
		return in.has(func(other string) bool { return strings.HasPrefix(path.Clean(other), path.Clean(name)+"/") })
	})
}

func newPayloads(c *conformance.Choices) series {
	in := make(series, 1+c.Int(4))
	for i := range in {
		in[i] = map[string]projected{}
		var owner *int64
		if os.Geteuid() == 0 && c.OneIn(4) {
			owner = new(int64(1000 + c.Int(2)))
		}
		for range c.Int(6) {
			name := conformance.Pick(c, "a", "b", "c-d", "dir/x", "dir/y", "dir/deep/z", "dir2/x", "a/..b", "...")
			if c.OneIn(16) {
				name = conformance.Pick(c, "./e", "e//f", "e/", "./a", "./dir/x", "dir//y", "a/b", "dir", "..bad", "../up", "dir/../a", "/abs", "", ".", "./..data", strings.Repeat("n", 256))
			}
			in[i][name] = projected{
				Content: conformance.Pick(c, "", "1", "2", "22", strings.Repeat("long", 10_000)),
				Mode:    conformance.Pick[uint32](c, 0o644, 0o600, 0o400, 0o777, 0),
				Owner:   owner,
			}
		}
	}
	return in
}

// writeAll writes the payloads of in to one directory in order, and returns the content after each.
func writeAll(in series, write func(dir string, payload map[string]projected, perms func()) error) (all []written) {
	dir, err := os.MkdirTemp("", "atomicwriter")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	for _, payload := range in {
		var w written
		w.Refused = write(dir, payload, func() { w.Perms++ }) != nil
		if w.Refused {
			w.Perms = 0 // the version was discarded
		}
		w.read(dir)
		all = append(all, w)
	}
	return all
}

func kubeletWrite(dir string, payload map[string]projected, perms func()) error {
	w, err := volumeutil.NewAtomicWriter(dir, "conformance")
	if err != nil {
		return err
	}
	files := map[string]volumeutil.FileProjection{}
	for name, f := range payload {
		files[name] = volumeutil.FileProjection{Data: []byte(f.Content), Mode: int32(f.Mode), FsUser: f.Owner}
	}
	return w.Write(files, func(string) error {
		perms()
		return nil
	})
}

func ourWrite(dir string, payload map[string]projected, perms func()) error {
	files := map[string]atomicwriter.File{}
	for name, f := range payload {
		files[name] = atomicwriter.File{Data: []byte(f.Content), Mode: fs.FileMode(f.Mode), Owner: f.Owner}
	}
	_, err := atomicwriter.Write(dir, files, atomicwriter.Options{SetPerms: func(string) error {
		perms()
		return nil
	}})
	return err
}

// read reads the content of a directory. The name of each version is replaced by a constant.
func (w *written) read(dir string) {
	w.Data, w.Links = map[string]string{}, map[string]string{}
	version, err := os.Readlink(filepath.Join(dir, "..data"))
	entries, readErr := os.ReadDir(dir)
	if readErr != nil {
		panic(readErr)
	}
	for _, e := range entries {
		switch name := e.Name(); {
		case err == nil && (name == "..data" || name == version):
		case strings.HasPrefix(name, ".."):
			w.Debris++
		default:
			target, err := os.Readlink(filepath.Join(dir, name))
			if err != nil {
				target = err.Error()
			}
			w.Links[name] = fmt.Sprint(target, " of ", owner(filepath.Join(dir, name)))
		}
	}
	if err != nil {
		return
	}
	root := filepath.Join(dir, version)
	_ = filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			panic(err)
		}
		info, err := e.Info()
		if err != nil {
			panic(err)
		}
		content := ""
		if !e.IsDir() {
			data, err := os.ReadFile(path)
			if err != nil {
				panic(err)
			}
			content = string(data)
		}
		w.Data[strings.TrimPrefix(path, root)] = fmt.Sprintf("%v of %d: %.20q, %d bytes", info.Mode(), owner(path), content, len(content))
		return nil
	})
}

func owner(path string) uint32 {
	info, err := os.Lstat(path)
	if err != nil {
		panic(err)
	}
	return info.Sys().(*syscall.Stat_t).Uid
}
