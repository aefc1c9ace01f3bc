// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package volume_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/seed81659283/nodeagent/internal/mounttest"
	"github.com/seed81659283/nodeagent/lifecycle/podspec"
	"github.com/seed81659283/nodeagent/volume"
)

// BenchmarkPodsOfFiveVolumes sets up and tears down 500 pods with five volumes, 16 at a time: with plain system calls, and with
// Volumes. It reports the ratio, and the CPU time of idle Volumes during two seconds.
func BenchmarkPodsOfFiveVolumes(b *testing.B) {
	mounttest.Need(b)
	n := envCount(b, "VOLUME_BENCH_PODS", 500)
	m, err := newObjects()
	require.NoError(b, err)
	v, err := volume.New(localOptions(b.TempDir(), m))
	require.NoError(b, err)
	ctx, cancel := context.WithCancel(b.Context())
	var wg sync.WaitGroup
	wg.Go(func() { _ = v.Run(ctx) })
	defer wg.Wait()
	defer cancel()
	var theirs, ours, idle time.Duration
	for b.Loop() {
		root := b.TempDir()
		began := time.Now()
		runAll(b, n, func(i int) error { return setUpBare(filepath.Join(root, fmt.Sprint(i))) })
		runAll(b, n, func(i int) error { return tearDownBare(filepath.Join(root, fmt.Sprint(i))) })
		theirs += time.Since(began)

		began = time.Now()
		runAll(b, n, func(i int) error {
			p := podWithFiveVolumes(b, fmt.Sprint("u", i))
			launch := podspec.Launch{}
			err := errors.Join(v.Prepare(ctx, p), v.Container(ctx, p, &p.Spec.Containers[0], &launch))
			if err == nil {
				_, err = podspec.Container(p, &p.Spec.Containers[0], launch, podspec.Options{})
			}
			return err
		})
		ours += time.Since(began)
		before := processorTime(b)
		time.Sleep(2 * time.Second)
		idle += processorTime(b) - before
		began = time.Now()
		runAll(b, n, func(i int) error { return v.Release(ctx, fmt.Sprint("u", i)) })
		ours += time.Since(began)
	}
	b.ReportMetric(float64(theirs.Microseconds())/float64(b.N*n), "bare-µs/pod")
	b.ReportMetric(float64(ours.Microseconds())/float64(b.N*n), "ours-µs/pod")
	b.ReportMetric(float64(ours)/float64(theirs), "ratio")
	b.ReportMetric(float64(idle.Milliseconds())/float64(b.N)/2, "idle-millicores")
}

// runAll calls fn for each number below n, 16 at a time.
func runAll(b *testing.B, n int, fn func(i int) error) {
	b.Helper()
	var mu sync.Mutex
	var first error
	runParallel(n, func(i int) {
		if err := fn(i); err != nil {
			mu.Lock()
			defer mu.Unlock()
			first = err
		}
	})
	require.NoError(b, first)
}

// processorTime returns the CPU time of this process.
func processorTime(b *testing.B) time.Duration {
	b.Helper()
	var u unix.Rusage
	require.NoError(b, unix.Getrusage(unix.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// bareVolumes returns the volume directories of a pod, and whether each is a tmpfs.
func bareVolumes(dir string) map[string]bool {
	return map[string]bool{
		filepath.Join(dir, "volumes/empty-dir/cache"): false, filepath.Join(dir, "volumes/empty-dir/memory"): true,
		filepath.Join(dir, "volumes/configmap/config"): false, filepath.Join(dir, "volumes/secret/key"): true,
		filepath.Join(dir, "volumes/projected/all"): true,
	}
}

// setUpBare sets up the volumes of a pod with the minimum of system calls: directories, mounts, atomic files with the fsGroup,
// and a bind mount.
func setUpBare(dir string) error {
	var errs []error
	keep := func(err error) { errs = append(errs, err) }
	for path, memory := range bareVolumes(dir) {
		keep(os.MkdirAll(path, 0o777))
		if memory {
			keep(unix.Mount("tmpfs", path, "tmpfs", 0, "size=1m"))
		}
		keep(os.Chown(path, -1, 1234))
		keep(os.Chmod(path, os.ModeSetgid|0o777))
		if filepath.Base(filepath.Dir(path)) == "empty-dir" {
			continue
		}
		now := filepath.Join(path, "..now")
		keep(os.Mkdir(now, 0o755))
		keep(os.WriteFile(filepath.Join(now, "a"), []byte("1"), 0o644))
		keep(os.Chown(filepath.Join(now, "a"), -1, 1234))
		keep(os.Chown(now, -1, 1234))
		keep(os.Symlink("..now", filepath.Join(path, "..data_tmp")))
		keep(os.Rename(filepath.Join(path, "..data_tmp"), filepath.Join(path, "..data")))
		keep(os.Symlink("..data/a", filepath.Join(path, "a")))
	}
	part, target := filepath.Join(dir, "volumes/empty-dir/cache/a/b"), filepath.Join(dir, "volume-subpaths/cache/c/0")
	keep(os.MkdirAll(part, 0o755))
	keep(os.MkdirAll(target, 0o755))
	keep(unix.Mount(part, target, "", unix.MS_BIND, ""))
	return errors.Join(errs...)
}

// tearDownBare reverts setUpBare.
func tearDownBare(dir string) error {
	errs := []error{unix.Unmount(filepath.Join(dir, "volume-subpaths/cache/c/0"), 0)}
	for path, memory := range bareVolumes(dir) {
		if memory {
			errs = append(errs, unix.Unmount(path, 0))
		}
	}
	return errors.Join(append(errs, os.RemoveAll(dir))...)
}
