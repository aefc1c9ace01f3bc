// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package volume_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/volume"
	"github.com/seed81659283/nodeagent/volume/volumetest"
)

// attacher attaches when it is told to.
type attacher struct{ attached chan string }

func (a attacher) WaitForAttach(ctx context.Context, _ volume.Volume) (string, error) {
	select {
	case path := <-a.attached:
		return path, nil
	case <-ctx.Done():
		return "", ctx.Err()
	}
}

// attachable is a plugin whose devices have to be attached.
type attachable struct {
	*volumetest.MemoryStager
	paths chan string
}

func (p attachable) Device(ctx context.Context, v volume.Volume) (volume.Device, error) {
	d, err := p.MemoryStager.Device(ctx, v)
	d.Attachable = true
	return d, err
}

func (p attachable) Stage(ctx context.Context, v volume.Volume) error {
	p.paths <- v.DevicePath
	return p.MemoryStager.Stage(ctx, v)
}

// requireInUse requires that the volumes of these names must stay attached.
func requireInUse(t *testing.T, a *agent, names ...corev1.UniqueVolumeName) {
	t.Helper()
	inUse, known := a.VolumesInUse()
	require.True(t, known)
	require.Equal(t, names, inUse)
}

// A volume is staged when it is attached, which may take longer than a step.
func TestAttach(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		root, s := t.TempDir(), newStorage()
		plugin, waits := attachable{s.MemoryStager, make(chan string, 10)}, attacher{make(chan string)}
		o := s.with(root, plugin)
		o.Attacher = waits
		a := start(t, o)
		require.ErrorContains(t, a.Prepare(t.Context(), claiming("u1", "db")), `stage volume "v-db": stage is under way for 2m3s`)
		requireInUse(t, a, "kubernetes.io/local-volume/pv1")
		time.Sleep(8 * time.Minute)
		require.ErrorContains(t, a.WaitError("u1"), `stage volume "v-db": wait for attach: context deadline exceeded`)
		assert.Contains(t, a.seen()[0], `MountVolume.WaitForAttach failed for volume "pv1" : context deadline exceeded`)
		assert.Empty(t, s.Calls())
		waits.attached <- "/dev/vdb"
		require.NoError(t, a.Prepare(t.Context(), claiming("u1", "db")))
		assert.Equal(t, "/dev/vdb", <-plugin.paths)
		a.stop()

		a = start(t, o)
		requireInUse(t, a, "kubernetes.io/local-volume/pv1") // from the record
		require.NoError(t, a.Release(t.Context(), "u1"))
		requireInUse(t, a)
		s.nothing(t, root)
	})
}

// handles is a plugin of which all volumes are of one device, staged where the PV says.
type handles struct{ *volumetest.MemoryStager }

func (h handles) Device(_ context.Context, v volume.Volume) (volume.Device, error) {
	return volume.Device{Name: "handle", Dir: "memory/" + v.PV.Name, Data: map[string]string{"of": "handle"}}, nil
}

// A device is had in one way at a time: a volume that would have it elsewhere is refused until it is free.
func TestDeviceOfTwoVolumes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		root, s := t.TempDir(), newStorage()
		a := start(t, s.with(root, handles{s.MemoryStager}))
		const refused = `volume pv2 (Filesystem at memory/pv2) is of the same device as volume pv1 (Filesystem at memory/pv1), which is in use: "handle"`
		require.NoError(t, a.Prepare(t.Context(), claiming("u1", "db")))
		require.NoError(t, a.Prepare(t.Context(), claiming("u2", "db")))
		require.ErrorContains(t, a.Prepare(t.Context(), claiming("u3", "logs")), `set up volume "v-logs": `+refused)
		for _, uid := range []string{"u1", "u2", "u3"} {
			require.NoError(t, a.Release(t.Context(), uid))
		}
		require.NoError(t, a.Prepare(t.Context(), claiming("u3", "logs")))
		require.NoError(t, a.Release(t.Context(), "u3"))

		require.ErrorContains(t, a.Prepare(t.Context(), claiming("u4", "db", "logs")), `set up volume "v-logs": `+refused, "in one pod")
		require.NoError(t, a.Release(t.Context(), "u4"))

		errs := make(chan error, 2)
		for uid, name := range map[string]string{"u5": "db", "u6": "logs"} {
			go func() { errs <- a.Prepare(t.Context(), claiming(uid, name)) }()
		}
		one, other := <-errs, <-errs
		assert.True(t, (one == nil) != (other == nil), "at once: %v, %v", one, other)
		require.NoError(t, a.Release(t.Context(), "u5"))
		require.NoError(t, a.Release(t.Context(), "u6"))
		s.nothing(t, root)
	})
}

// A stage that nobody waits for any more is ended, and one that fails is told to all pods that share it.
func TestStageFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		root, s := t.TempDir(), newStorage()
		fault := errors.New("no such device")
		var mu sync.Mutex
		a := start(t, s.with(root, &volumetest.FaultyPlugin{Plugin: s.MemoryStager, StageFault: func(ctx context.Context, v volume.Volume) error {
			mu.Lock()
			defer mu.Unlock()
			if fault != nil {
				return fault
			}
			return volumetest.Hang(ctx, v)
		}}))
		var wg sync.WaitGroup
		for _, uid := range []string{"u1", "u2"} {
			wg.Go(func() {
				err := a.Prepare(t.Context(), claiming(uid, "db"))
				assert.EqualError(t, err, "volumes of pod default/pod-"+uid+`: timed out after 2m3s: stage volume "v-db": no such device`)
			})
		}
		wg.Wait()
		assert.Contains(t, a.seen()[0], `Warning FailedMount: MountVolume.MountDevice failed for volume "pv1" : no such device`)
		mu.Lock()
		fault = nil
		mu.Unlock()
		time.Sleep(30 * time.Second)
		began := time.Now()
		require.NoError(t, a.Release(t.Context(), "u1"))
		require.NoError(t, a.Release(t.Context(), "u2"))
		assert.Less(t, time.Since(began), time.Second)
		s.nothing(t, root)
	})
}

// deaf is a plugin whose set-up does not end with its context.
type deaf struct {
	*volumetest.MemoryStager
	until chan struct{}
}

func (d deaf) SetUp(_ context.Context, v volume.Volume) (volume.Mount, error) {
	<-d.until
	return d.MemoryStager.SetUp(context.WithoutCancel(context.TODO()), v)
}

// A call that never returns keeps neither Release nor Run from returning, and what it makes after all is torn down.
func TestDeaf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		root, s := t.TempDir(), newStorage()
		d := deaf{s.MemoryStager, make(chan struct{})}
		a := start(t, s.with(root, d))
		require.ErrorContains(t, a.Prepare(t.Context(), claiming("u1", "db")), `set up volume "v-db": `)
		time.Sleep(10 * time.Second)
		require.ErrorContains(t, a.WaitError("u1"), `the file system does not answer: the plugin does not return`)
		began := time.Now()
		require.ErrorContains(t, a.Release(t.Context(), "u1"), "a call has not returned")
		assert.LessOrEqual(t, time.Since(began), 124*time.Second)
		close(d.until)
		require.NoError(t, a.Release(t.Context(), "u1"))
		s.nothing(t, root)
		assert.NotEmpty(t, s.Calls())

		d.until = make(chan struct{})
		a.stop()
		a = start(t, s.with(root, d))
		go func() { _ = a.Prepare(t.Context(), claiming("u2", "db")) }()
		synctest.Wait()
		began = time.Now()
		a.stop()
		assert.LessOrEqual(t, time.Since(began), 10*time.Second, "Run returns")
		close(d.until)
		synctest.Wait()
	})
}

// Pods of random claims come and go while calls fail, also across restarts of the agent. In the end nothing is left, and nothing was
// ever set up on a device that was not staged, or unstaged while it was used.
func TestRandomClaims(t *testing.T) {
	seeds := 20
	if os.Getenv("NODEAGENT_SOAK") != "" {
		seeds = 1000
	}
	for seed := range seeds {
		synctest.Test(t, func(t *testing.T) {
			root, s, r := t.TempDir(), newStorage(), rand.New(rand.NewPCG(uint64(seed), 7))
			var mu sync.Mutex
			faults := rand.New(rand.NewPCG(uint64(seed), 8))
			fault := func(context.Context, volume.Volume) error {
				mu.Lock()
				defer mu.Unlock()
				return []error{nil, nil, nil, errors.New("x"), &volume.FinalError{Err: errors.New("x")}}[faults.IntN(5)]
			}
			quiet := func(context.Context, volume.Volume) error { time.Sleep(time.Millisecond); return nil }
			f := &volumetest.FaultyPlugin{Plugin: s.MemoryStager, SetUpFault: fault, StageFault: fault, UnstageFault: fault, TearDownFault: quiet}
			o := s.with(root, f)
			o.WaitTimeout = 5 * time.Second
			a := start(t, o)
			for range 10 {
				var wg sync.WaitGroup
				for i := range 4 {
					uid, claims := fmt.Sprint("u", i), [][]string{{"db"}, {"logs"}, {"db", "logs"}}[r.IntN(3)]
					up := r.IntN(2) == 0
					wg.Go(func() {
						if up {
							_ = a.Prepare(t.Context(), claiming(uid, claims...))
						} else {
							_ = a.Release(t.Context(), uid)
						}
					})
				}
				wg.Wait()
				if r.IntN(4) == 0 {
					a.stop()
					a = start(t, o)
				}
			}
			for i := range 4 {
				for a.Release(t.Context(), fmt.Sprint("u", i)) != nil {
					time.Sleep(time.Second)
				}
			}
			s.nothing(t, root)
		})
	}
}
