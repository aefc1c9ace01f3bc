// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package conformance_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	kubeletsubpath "k8s.io/kubernetes/pkg/volume/util/subpath"
	"k8s.io/mount-utils"

	"github.com/seed81659283/nodeagent/conformance"
	"github.com/seed81659283/nodeagent/internal/mounttest"
	"github.com/seed81659283/nodeagent/volume/subpath"
)

// Both sides resolve generated subPaths to the same directory of the volume or reject them, and create the same directories.
func TestSubPath(t *testing.T) {
	mounttest.Need(t)
	met := map[string]int{}
	for i := range 1_000 {
		in := newSubPathVolume(conformance.NewChoices(conformance.RandomBytes(1, uint64(i))))
		kubelet, ours := in.prepared(kubeletSubPath), in.prepared(ourSubPath)
		switch why := in.exception(); {
		case kubelet == ours:
			met["the same"]++
		case why != "":
			met[why]++
		default:
			t.Fatalf("input %d, %+v:\nkubelet: %s\nours:    %s", i, in, kubelet, ours)
		}
		if strings.HasPrefix(ours, "bound") {
			met["bound"]++
		}
	}
	t.Log(met)
	for _, name := range []string{"bound", "out of the volume and back"} {
		if met[name] == 0 {
			t.Errorf("%s: no input has this result", name)
		}
	}
}

// subPathVolume is a volume with symbolic links, and a subPath.
type subPathVolume struct {
	Links   map[string]string // by path; VOLUME is replaced by the path of the volume
	SubPath string
}

func newSubPathVolume(c *conformance.Choices) subPathVolume {
	in := subPathVolume{Links: map[string]string{}}
	for range c.Int(3) {
		path := conformance.Pick(c, "l", "a/l", "a/b/l", "m")
		in.Links[path] = conformance.Pick(c, "a", "..", "../a", "b", "a/b", "l", "m", "../m", "file", "missing", ".", "../..", "../volume/a",
			"../../volume/a", "VOLUME/a", "VOLUME", "VOLUME/../volume/a", "/", "VOLUME/../outside", "/proc/self/root", "../outside", "VOLUME2")
	}
	var elements []string
	for range 1 + c.Int(4) {
		elements = append(elements, conformance.Pick(c, "a", "l", "b", "m", "file", "new", ".", "a", "l", "deeper"))
	}
	in.SubPath = strings.Join(elements, "/")
	if c.OneIn(16) {
		in.SubPath = conformance.Pick(c, "..", "a/..", "a/../b", "/a", "a..b", "..a", "a/")
	}
	return in
}

// exception returns the name of the intended difference for the input, or "".
func (in subPathVolume) exception() string {
	for _, target := range in.Links {
		if strings.Contains(target, "..") && strings.Contains(target, "volume/a") {
			return "out of the volume and back"
		}
	}
	return ""
}

// prepared creates a volume, prepares the subPath, and describes the result.
func (in subPathVolume) prepared(prepare func(volume, subPath, pod string) (string, error)) string {
	top, err := os.MkdirTemp("", "subpath")
	must(err)
	defer os.RemoveAll(top)
	root, pod := filepath.Join(top, "volume"), filepath.Join(top, "pod")
	must(os.MkdirAll(filepath.Join(root, "a/b"), 0o755))
	must(os.MkdirAll(filepath.Join(top, "outside"), 0o755))
	must(os.Mkdir(filepath.Join(top, "volume2"), 0o755))
	must(os.Chmod(root, 0o775))
	must(os.WriteFile(filepath.Join(root, "file"), nil, 0o600))
	for path, target := range in.Links {
		_ = os.Symlink(strings.ReplaceAll(strings.ReplaceAll(target, "VOLUME2", root+"2"), "VOLUME", root), filepath.Join(root, path))
	}
	result := "refused"
	if path, err := prepare(root, in.SubPath, pod); err == nil {
		result = "bound " + strings.TrimPrefix(path, top)
	}
	must(filepath.Walk(top, func(path string, info os.FileInfo, err error) error {
		if name := path[len(top):]; err == nil && info.IsDir() && !strings.HasPrefix(name, "/pod") && name != "" && result != "refused" {
			result += fmt.Sprintf(" %s %v", name, info.Mode())
		}
		return err
	}))
	return result
}

// recordingMounter records the source of a mount instead of mounting it.
type recordingMounter struct {
	*mount.FakeMounter
	source string
}

func (m *recordingMounter) MountSensitiveWithoutSystemdWithMountFlags(source, _, _ string, _, _, _ []string) error {
	path, err := os.Readlink(source)
	m.source = path
	return err
}

// kubeletSubPath prepares a subPath like the kubelet.
func kubeletSubPath(volume, subPath, pod string) (string, error) {
	if filepath.IsAbs(subPath) {
		return "", errors.New("absolute")
	}
	for element := range strings.SplitSeq(subPath, "/") {
		if element == ".." {
			return "", errors.New("up")
		}
	}
	m := &recordingMounter{FakeMounter: mount.NewFakeMounter(nil)}
	s := kubeletsubpath.New(m)
	path := filepath.Join(volume, subPath)
	if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
		info, err := os.Stat(volume)
		must(err)
		if err := s.SafeMakeDir(subPath, volume, info.Mode()); err != nil && !errors.Is(err, os.ErrExist) {
			return "", err
		}
	}
	_, _, err := s.PrepareSafeSubpath(kubeletsubpath.Subpath{
		Path: path, VolumeName: "data", VolumePath: volume, PodDir: pod, ContainerName: "c",
	})
	return m.source, err
}

// ourSubPath prepares a subPath, and returns the path of the bound directory in the volume.
func ourSubPath(volume, subPath, pod string) (string, error) {
	target := filepath.Join(pod, "volume-subpaths/data/c/0")
	if _, err := subpath.Prepare(context.Background(), subpath.Request{Volume: volume, SubPath: subPath, Target: target}); err != nil {
		return "", err
	}
	bound, err := os.Lstat(target)
	must(err)
	must(unix.Unmount(target, unix.MNT_DETACH))
	found := ""
	must(filepath.Walk(volume, func(path string, info os.FileInfo, err error) error {
		if err == nil && os.SameFile(info, bound) {
			found = path
		}
		return err
	}))
	return found, nil
}

// subPaths are the functions of both sides that bind a subPath and remove the bind.
var subPaths = []struct {
	name           string
	prepare, clean func(volume, pod string) error
}{
	{"kubelet", func(volume, pod string) error {
		_, _, err := kubeletsubpath.New(mount.New("")).PrepareSafeSubpath(kubeletsubpath.Subpath{
			Path: filepath.Join(volume, "a/b"), VolumeName: "data", VolumePath: volume, PodDir: pod, ContainerName: "c",
		})
		return err
	}, func(_, pod string) error { return kubeletsubpath.New(mount.New("")).CleanSubPaths(pod, "data") }},
	{"ours", func(volume, pod string) error {
		_, err := subpath.Prepare(context.Background(), subpath.Request{
			Volume: volume, SubPath: "a/b", Target: filepath.Join(pod, "volume-subpaths/data/c/0"),
		})
		return err
	}, func(_, pod string) error {
		return subpath.Clean(context.Background(), filepath.Join(pod, "volume-subpaths"))
	}},
}

// bindAgain measures binding a subPath and removing the bind.
func bindAgain(b *testing.B, side int) {
	volume, pod := tmpfsDir(b), tmpfsDir(b)
	must(os.MkdirAll(filepath.Join(volume, "a/b"), 0o755))
	for b.Loop() {
		must(subPaths[side].prepare(volume, pod))
		must(subPaths[side].clean(volume, pod))
	}
	if entries, err := os.ReadDir(pod); err != nil || len(entries) > 0 {
		b.Fatal("left: ", entries, err)
	}
}

func BenchmarkSubPath(b *testing.B) {
	for side := range subPaths {
		b.Run(subPaths[side].name, func(b *testing.B) { bindAgain(b, side) })
	}
}

// A bind and its removal take at most a tenth of the kubelet's time, which runs mount(8) and umount(8).
func TestSubPathSpeed(t *testing.T) {
	if !*speed {
		t.Skip("without -speed")
	}
	ratio := bestRatio(10, func(side int) testing.BenchmarkResult {
		return testing.Benchmark(func(b *testing.B) { bindAgain(b, side) })
	})
	fmt.Printf("subPath, prepare and clean: %.2f of the kubelet's time\n", ratio)
	if ratio > 0.1 {
		t.Errorf("subPath: %.2f of the kubelet's time, want at most 0.1", ratio)
	}
}
