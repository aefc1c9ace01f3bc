// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package source_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/lifecycle"
	"github.com/seed81659283/nodeagent/lifecycle/source"
)

func manifest(name, image string) string {
	return "apiVersion: v1\nkind: Pod\nmetadata:\n  name: " + name + "\nspec:\n  containers:\n  - name: c\n    image: '" + image + "'\n"
}

// scanner calls Dir.Scan at times of its own clock.
type scanner struct {
	*testing.T
	path string
	dir  *source.Dir
	now  time.Time
}

func newScanner(t *testing.T) *scanner {
	path := t.TempDir()
	return &scanner{T: t, path: path, dir: source.NewDir(path, source.DirOptions{}), now: time.Now().Add(time.Hour)}
}

func (s *scanner) write(name, content string) {
	s.Helper()
	require.NoError(s, os.WriteFile(filepath.Join(s.path, name), []byte(content), 0o644))
}

// scan calls Scan once.
func (s *scanner) scan() source.Update { return s.dir.Scan(s.now) }

// scanUntilStable calls Scan until all changes are stable, and returns the last update.
func (s *scanner) scanUntilStable() source.Update {
	s.scan()
	s.now = s.now.Add(source.DefaultStableFor)
	return s.scan()
}

// restart replaces the Dir, like a restart of the agent.
func (s *scanner) restart() { s.dir = source.NewDir(s.path, source.DirOptions{}) }

// images returns pod=image for every pod of an update.
func images(u source.Update) string {
	var s []string
	for _, p := range u.Pods {
		s = append(s, p.Name+"="+p.Spec.Containers[0].Image)
	}
	return strings.Join(s, " ")
}

func errorTexts(u source.Update, path string) []string {
	var s []string
	for _, e := range u.Errs {
		s = append(s, strings.ReplaceAll(e.Error(), path+"/", ""))
	}
	return s
}

func TestScanReadsRegularFilesInOrder(t *testing.T) {
	s := newScanner(t)
	s.write("b.yaml", manifest("b", "i"))
	s.write("a.json", `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"},"spec":{"containers":[{"name":"c","image":"i"}]}}`)
	s.write(".hidden.yaml", manifest("hidden", "i"))
	require.NoError(t, os.Mkdir(filepath.Join(s.path, "sub"), 0o755))
	socket, err := net.Listen("unix", filepath.Join(s.path, "socket"))
	require.NoError(t, err)
	defer socket.Close()
	u := s.scan()
	assert.Equal(t, "a=i b=i", images(u), "the first scan reads files that are older than StableFor")
	assert.Empty(t, u.Errs)
	assert.False(t, u.Incomplete)
	assert.Equal(t, u.Pods, s.scan().Pods)
	assert.Same(t, u.Pods[0], s.scan().Pods[0])
}

func TestUnchangedPodsKeepTheirPointers(t *testing.T) {
	s := newScanner(t)
	s.write("a.yaml", manifest("a", "1")+"---\n"+manifest("b", "1"))
	before := s.scan().Pods
	s.write("a.yaml", "# a comment\n"+manifest("a", "2")+"---\n"+manifest("b", "1"))
	after := s.scanUntilStable().Pods
	assert.NotSame(t, before[0], after[0])
	assert.Same(t, before[1], after[1])
}

func TestChangedPodWithFixedUIDKeepsSeenAnnotation(t *testing.T) {
	s := newScanner(t)
	fixed := strings.Replace(manifest("a", "1"), "name: a\n", "name: a\n  uid: u1\n", 1)
	s.write("a.yaml", fixed)
	before := s.scan().Pods[0]
	s.write("a.yaml", strings.Replace(fixed, "image: '1'", "image: x", 1))
	s.now = s.now.Add(time.Minute)
	after := s.scanUntilStable().Pods[0]
	assert.Equal(t, "x", after.Spec.Containers[0].Image)
	assert.Equal(t, before.UID, after.UID)
	assert.Equal(t, before.Annotations[source.AnnotationSeen], after.Annotations[source.AnnotationSeen])
}

func TestScanReadsChangeOnceStable(t *testing.T) {
	s := newScanner(t)
	s.write("a.yaml", manifest("a", "i1"))
	require.Equal(t, "a=i1", images(s.scan()))

	// Half a file may be a valid manifest.
	s.write("a.yaml", manifest("a", "i"))
	assert.Equal(t, "a=i1", images(s.scan()))
	s.now = s.now.Add(source.DefaultStableFor - 1)
	assert.Equal(t, "a=i1", images(s.scan()))
	s.write("a.yaml", manifest("a", "i22"))
	s.now = s.now.Add(1)
	assert.Equal(t, "a=i1", images(s.scan()), "a second write defers the change")
	s.now = s.now.Add(source.DefaultStableFor)
	assert.Equal(t, "a=i22", images(s.scan()))
}

func TestFileMovedAwayForAMomentKeepsItsPod(t *testing.T) {
	s := newScanner(t)
	path := filepath.Join(s.path, "a.yaml")
	s.write("a.yaml", manifest("a", "i"))
	s.scan()
	require.NoError(t, os.Rename(path, path+"~"))
	assert.Equal(t, "a=i", images(s.scan()))
	require.NoError(t, os.Rename(path+"~", path))
	s.now = s.now.Add(time.Minute)
	assert.Equal(t, "a=i", images(s.scan()))

	require.NoError(t, os.Remove(path))
	assert.Equal(t, "a=i", images(s.scan()), "a removal after a moved file waits for StableFor again")
	u := s.scanUntilStable()
	assert.Empty(t, u.Pods)
	assert.False(t, u.Incomplete)
}

func TestInvalidFileKeepsItsPodsAndOtherFiles(t *testing.T) {
	huge := strings.Repeat("# 345678901234\n", 10<<20/15+1)
	for name, invalid := range map[string]struct {
		content string
		want    string
	}{
		"truncated":   {"apiVersion: v1\nkind: Po", `a.yaml:2: kind: want Pod, PodList or List, got "Po"`},
		"empty":       {"", "a.yaml:1: no object, only blanks and comments"},
		"not YAML":    {"a: b: c", "a.yaml:1: parse YAML: mapping values are not allowed in this context"},
		"too large":   {huge, "a.yaml: 10485765 bytes exceed the limit of 10485760"},
		"invalid pod": {manifest("a", " i"), "a.yaml:8: spec.containers[0].image: Invalid value: \" i\": must not have leading or trailing whitespace"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScanner(t)
			s.write("a.yaml", manifest("a", "good"))
			s.write("b.yaml", manifest("b", "good"))
			before := s.scan()
			s.write("a.yaml", invalid.content)
			s.write("b.yaml", manifest("b", "better"))
			u := s.scanUntilStable()
			assert.Equal(t, "a=good b=better", images(u))
			assert.Equal(t, []string{invalid.want}, errorTexts(u, s.path))
			assert.False(t, u.Incomplete, "the set is complete with the previous pods of the file")
			assert.Same(t, before.Pods[0], u.Pods[0])

			s.restart()
			u = s.scanUntilStable()
			assert.Equal(t, "b=better", images(u))
			assert.Equal(t, []string{invalid.want}, errorTexts(u, s.path))
			assert.True(t, u.Incomplete, "the set is incomplete without the previous pods of the file")

			s.write("a.yaml", manifest("a", "fixed"))
			u = s.scanUntilStable()
			assert.Equal(t, "a=fixed b=better", images(u))
			assert.Empty(t, u.Errs)
			assert.False(t, u.Incomplete)
		})
	}
}

func TestInvalidPodOfListKeepsOtherPods(t *testing.T) {
	s := newScanner(t)
	s.write("l.yaml", manifest("a", "1")+"---\n"+manifest("b", "1")+"---\n"+manifest("c", "1"))
	s.scan()
	s.write("l.yaml", manifest("a", "2")+"---\n"+manifest("b", "")+"---\n")
	u := s.scanUntilStable()
	assert.Equal(t, "a=2 b=1 c=1", images(u), "invalid b keeps its pod, and c may be the previous name of b")
	assert.Len(t, u.Errs, 1)
	s.write("l.yaml", manifest("a", "2")+"---\n"+manifest("b", "2")+"---\n")
	assert.Equal(t, "a=2 b=2", images(s.scanUntilStable()))
}

func TestUnreadableFileIsError(t *testing.T) {
	s := newScanner(t)
	path := filepath.Join(s.path, "a.yaml")
	require.NoError(t, os.Symlink("nowhere", path))
	u := s.scanUntilStable()
	assert.Equal(t, []string{"a.yaml: stat: no such file or directory"}, errorTexts(u, s.path))
	assert.True(t, u.Incomplete)
	s.write("nowhere", manifest("a", "i"))
	u = s.scanUntilStable()
	assert.Equal(t, "a=i", images(u))
	assert.Equal(t, []string{"nowhere:4: metadata.name: duplicate: pod default/a is in " + path}, []string{strings.ReplaceAll(u.Errs[0].Error(), s.path+"/nowhere", "nowhere")})
}

func TestDuplicatePodIsErrorOfLaterFile(t *testing.T) {
	s := newScanner(t)
	s.write("m.yaml", manifest("web", "old"))
	s.scan()
	s.write("a.yaml", manifest("web", "new"))
	s.write("z.yaml", manifest("web", "new"))
	u := s.scanUntilStable()
	assert.Equal(t, "web=old", images(u), "the pod of the first read file stays")
	assert.Equal(t, []string{
		"a.yaml:4: metadata.name: duplicate: pod default/web is in m.yaml",
		"z.yaml:4: metadata.name: duplicate: pod default/web is in m.yaml",
	}, errorTexts(u, s.path))
	require.NoError(t, os.Remove(filepath.Join(s.path, "m.yaml")))
	u = s.scanUntilStable()
	assert.Equal(t, "web=new", images(u))
	assert.Equal(t, []string{"z.yaml:4: metadata.name: duplicate: pod default/web is in a.yaml"}, errorTexts(u, s.path))

	s = newScanner(t)
	s.write("a.yaml", strings.Replace(manifest("a", "i"), "name: a\n", "name: a\n  uid: u1\n", 1))
	s.write("b.yaml", strings.Replace(manifest("b", "i"), "name: b\n", "name: b\n  uid: u1\n", 1))
	u = s.scan()
	assert.Equal(t, "a=i", images(u))
	assert.Equal(t, []string{"b.yaml:4: metadata.uid: duplicate: UID u1 is in a.yaml"}, errorTexts(u, s.path))
}

// While one of two files is changing, it is unknown whether both have the pod.
func TestPodMovedBetweenFilesIsNoDuplicate(t *testing.T) {
	s := newScanner(t)
	s.write("f4.yaml", manifest("a", "i1"))
	s.scanUntilStable()
	s.write("f0.yaml", manifest("a", "i2"))
	s.scan()
	s.now = s.now.Add(source.DefaultStableFor)
	s.write("f4.yaml", manifest("b", "i33"))
	u := s.scan()
	assert.Equal(t, "a=i1", images(u))
	assert.Empty(t, u.Errs, "the unstable f4.yaml may no longer have the pod")
	u = s.scanUntilStable()
	assert.Equal(t, "a=i2 b=i33", images(u))
	assert.Empty(t, u.Errs)

	s.write("f0.yaml", manifest("b", "i4"))
	assert.Empty(t, s.scan().Errs)
	assert.Equal(t, []string{"f0.yaml:4: metadata.name: duplicate: pod default/b is in f4.yaml"}, errorTexts(s.scanUntilStable(), s.path))
	require.NoError(t, os.Remove(filepath.Join(s.path, "f4.yaml")))
	assert.Empty(t, s.scan().Errs, "f4.yaml may be recreated")
	assert.Equal(t, "b=i4", images(s.scanUntilStable()))
}

func TestMissingDirectoryKeepsPodsAndEmptyDirectoryRemovesThem(t *testing.T) {
	s := newScanner(t)
	s.write("a.yaml", manifest("a", "i"))
	s.scan()
	require.NoError(t, os.RemoveAll(s.path))
	u := s.scanUntilStable()
	assert.Equal(t, "a=i", images(u))
	assert.Equal(t, []string{s.path + ": find manifests: stat: no such file or directory"}, errorTexts(u, "-"))
	assert.ErrorIs(t, u.Errs[0], os.ErrNotExist)
	assert.False(t, u.Incomplete)

	s.restart()
	assert.True(t, s.scan().Incomplete)

	s = newScanner(t)
	s.write("a.yaml", manifest("a", "i"))
	s.scan()
	require.NoError(t, os.RemoveAll(s.path))
	s.scan()
	require.NoError(t, os.Mkdir(s.path, 0o755))
	u = s.scanUntilStable()
	assert.Empty(t, u.Pods)
	assert.Empty(t, u.Errs)
	assert.False(t, u.Incomplete)
}

// A path that never existed has no pods, as in the kubelet. Other errors, and pods that were read before, are kept apart from that.
func TestMissingPathIsEmptyWithMissingIsEmpty(t *testing.T) {
	s := newScanner(t)
	file := filepath.Join(s.path, "file")
	for path, incomplete := range map[string]bool{filepath.Join(s.path, "never"): false, filepath.Join(file, "below"): true} {
		s.write("file", manifest("a", "i"))
		s.dir = source.NewDir(path, source.DirOptions{MissingIsEmpty: true})
		u := s.scan()
		assert.Empty(t, u.Pods)
		assert.Len(t, u.Errs, 1, path)
		assert.Equal(t, incomplete, u.Incomplete, path)
	}
	never := filepath.Join(s.path, "never")
	s.dir = source.NewDir(never, source.DirOptions{MissingIsEmpty: true})
	s.scan()
	require.NoError(t, os.Mkdir(never, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(never, "a.yaml"), []byte(manifest("a", "i")), 0o600))
	assert.Equal(t, "a=i", images(s.scanUntilStable()), "a path that is created later is read")
	require.NoError(t, os.RemoveAll(never))
	assert.Equal(t, "a=i", images(s.scanUntilStable()), "pods are kept while the path is missing again")

	sets := []lifecycle.PodSet{{Source: source.File}, {Source: source.URL, Pods: []*corev1.Pod{{}}}}
	assert.False(t, source.HasPods(sets, source.File))
	assert.True(t, source.HasPods(sets, source.URL))
	assert.False(t, source.HasPods(nil, source.URL))
}

func TestFileWithTimeInTheFuture(t *testing.T) {
	s := newScanner(t)
	s.write("a.yaml", manifest("a", "i"))
	future := s.now.Add(24 * time.Hour)
	require.NoError(t, os.Chtimes(filepath.Join(s.path, "a.yaml"), future, future))
	assert.True(t, s.scan().Incomplete)
	assert.Equal(t, "a=i", images(s.scanUntilStable()))
}

// follower runs a Dir and stores its last update.
type follower struct {
	*testing.T
	mu   sync.Mutex
	last source.Update
}

func startFollower(t *testing.T, path string) *follower {
	f := &follower{T: t, last: source.Update{PodSet: lifecycle.PodSet{Incomplete: true}}}
	d := source.NewDir(path, source.DirOptions{StableFor: 20 * time.Millisecond, Period: time.Minute})
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		assert.NoError(t, d.Run(ctx, func(u source.Update) {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.last = u
		}))
	})
	t.Cleanup(func() { cancel(); wg.Wait() })
	return f
}

// awaitPods waits until the pods equal want.
func (f *follower) awaitPods(want string) {
	f.Helper()
	assert.EventuallyWithT(f, func(c *assert.CollectT) {
		f.mu.Lock()
		defer f.mu.Unlock()
		assert.Equal(c, want, images(f.last))
		assert.False(c, f.last.Incomplete)
	}, time.Minute, 5*time.Millisecond)
}

// The scan period is a minute, so the kernel reports the changes.
func TestRunFollowsChanges(t *testing.T) {
	path := t.TempDir()
	write := func(name, content string) {
		require.NoError(t, os.WriteFile(filepath.Join(path, name), []byte(content), 0o644))
	}
	f := startFollower(t, path)
	f.awaitPods("")
	write("a.yaml", manifest("a", "1"))
	f.awaitPods("a=1")
	write("a.yaml", manifest("a", "2"))
	f.awaitPods("a=2")
	write(".b.tmp", manifest("b", "1"))
	require.NoError(t, os.Rename(filepath.Join(path, ".b.tmp"), filepath.Join(path, "b.yaml")))
	f.awaitPods("a=2 b=1")
	require.NoError(t, os.Remove(filepath.Join(path, "a.yaml")))
	f.awaitPods("b=1")
}

func TestRunFollowsMountedConfigMap(t *testing.T) {
	path := t.TempDir()
	write := func(version, image string) {
		require.NoError(t, os.Mkdir(filepath.Join(path, version), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(path, version, "web.yaml"), []byte(manifest("web", image)), 0o644))
		require.NoError(t, os.Symlink(version, filepath.Join(path, "..data_tmp")))
		require.NoError(t, os.Rename(filepath.Join(path, "..data_tmp"), filepath.Join(path, "..data")))
	}
	write("..v1", "1")
	require.NoError(t, os.Symlink("..data/web.yaml", filepath.Join(path, "web.yaml")))
	f := startFollower(t, path)
	f.awaitPods("web=1")
	write("..v2", "2")
	f.awaitPods("web=2")
}

func TestRunFollowsRecreatedDirectory(t *testing.T) {
	path := filepath.Join(t.TempDir(), "manifests")
	f := startFollower(t, path)
	for i := range 2 {
		require.NoError(t, os.Mkdir(path, 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(path, "a.yaml"), []byte(manifest("a", fmt.Sprint(i))), 0o644))
		f.awaitPods(fmt.Sprintf("a=%d", i))
		require.NoError(t, os.RemoveAll(path))
	}
}

func TestRunFollowsSingleFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "web.yaml")
	require.NoError(t, os.WriteFile(path, []byte(manifest("a", "1")), 0o644))
	f := startFollower(t, path)
	f.awaitPods("a=1")
	require.NoError(t, os.WriteFile(path+".new", []byte(manifest("a", "2")), 0o644))
	require.NoError(t, os.Rename(path+".new", path))
	f.awaitPods("a=2")
}

// A writer replaces files in place and by rename. No pod may appear that was never written, and none may disappear. If the
// writer pauses for long on a busy machine, an empty file may be reported, but the pod must stay.
func TestRunWithConcurrentWriters(t *testing.T) {
	path := t.TempDir()
	target := filepath.Join(path, "a.yaml")
	long := manifest("a", strings.Repeat("x", 64)) + strings.Repeat("#\n", 1000)
	require.NoError(t, os.WriteFile(target, []byte(long), 0o644))
	d := source.NewDir(path, source.DirOptions{StableFor: 20 * time.Millisecond})
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := 0; ctx.Err() == nil; i++ {
			if i%2 == 0 {
				assert.NoError(t, os.WriteFile(target, []byte(long), 0o644))
				continue
			}
			tmp := filepath.Join(path, ".tmp")
			assert.NoError(t, os.WriteFile(tmp, []byte(long), 0o644))
			assert.NoError(t, os.Rename(tmp, target))
		}
	})
	var first *corev1.Pod
	require.NoError(t, d.Run(ctx, func(u source.Update) {
		for _, p := range u.Pods {
			if first == nil {
				first = p
			}
			assert.Same(t, first, p)
		}
		assert.True(t, first == nil || len(u.Pods) == 1)
	}))
	wg.Wait()
}

func BenchmarkScan(b *testing.B) {
	path := b.TempDir()
	for i := range 1000 {
		name := fmt.Sprintf("pod-%d", i)
		require.NoError(b, os.WriteFile(filepath.Join(path, name+".yaml"), []byte(manifest(name, "i")), 0o644))
	}
	start := time.Now().Add(time.Hour)
	b.Run("first", func(b *testing.B) {
		for b.Loop() {
			source.NewDir(path, source.DirOptions{}).Scan(start)
		}
	})
	b.Run("unchanged", func(b *testing.B) {
		d := source.NewDir(path, source.DirOptions{})
		require.Len(b, d.Scan(start).Pods, 1000)
		for b.Loop() {
			d.Scan(start)
		}
	})
}

func TestErrorUnwraps(t *testing.T) {
	cause := errors.New("cause")
	err := &source.Error{File: "f", Err: cause}
	assert.ErrorIs(t, err, cause)
	assert.Equal(t, "f: cause", err.Error())
	assert.True(t, slices.Contains([]error{err}, error(err)))
}
