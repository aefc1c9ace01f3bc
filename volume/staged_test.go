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

// attacher returns from WaitForAttach when the test sends a path.
type attacher struct{ attached chan string }

func (a attacher) WaitForAttach(ctx context.Context, _ volume.Volume) (string, error) {
	select {
	case path := <-a.attached:
		return path, nil
	case <-ctx.Done():
		return "", ctx.Err()
	}
}

// attachablePlugin is a plugin whose devices must be attached.
type attachablePlugin struct {
	*volumetest.MemoryStager
	paths chan string
}

func (p attachablePlugin) Device(ctx context.Context, v volume.Volume) (volume.Device, error) {
	d, err := p.MemoryStager.Device(ctx, v)
	d.Attachable = true
	return d, err
}

func (p attachablePlugin) Stage(ctx context.Context, v volume.Volume) error {
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

func TestStageWaitsForAttachmentBeyondStepTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		root, s := t.TempDir(), newStorage()
		plugin, waits := attachablePlugin{s.MemoryStager, make(chan string, 10)}, attacher{make(chan string)}
		o := s.optionsWith(root, plugin)
		o.Attacher = waits
		a := startAgent(t, o)
		require.ErrorContains(t, a.Prepare(t.Context(), podWithClaims("u1", "db")), `stage volume "v-db": stage is under way for 2m3s`)
		requireInUse(t, a, "kubernetes.io/local-volume/pv1")
		time.Sleep(8 * time.Minute)
		require.ErrorContains(t, a.WaitError("u1"), `stage volume "v-db": wait for attach: context deadline exceeded`)
		assert.Contains(t, a.recordedEvents()[0], `MountVolume.WaitForAttach failed for volume "pv1" : context deadline exceeded`)
		assert.Empty(t, s.Calls())
		waits.attached <- "/dev/vdb"
		require.NoError(t, a.Prepare(t.Context(), podWithClaims("u1", "db")))
		assert.Equal(t, "/dev/vdb", <-plugin.paths)
		a.stop()

		a = startAgent(t, o)
		requireInUse(t, a, "kubernetes.io/local-volume/pv1") // from the record
		require.NoError(t, a.Release(t.Context(), "u1"))
		requireInUse(t, a)
		s.checkNothingLeft(t, root)
	})
}

// sameDevicePlugin is a plugin with one device for all volumes, staged at a directory per PV.
type sameDevicePlugin struct{ *volumetest.MemoryStager }

func (h sameDevicePlugin) Device(_ context.Context, v volume.Volume) (volume.Device, error) {
	return volume.Device{Name: "handle", Dir: "memory/" + v.PV.Name, Data: map[string]string{"of": "handle"}}, nil
}

// The second volume would stage the device at another directory.
func TestPrepareRefusesSecondVolumeOfDeviceInUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		root, s := t.TempDir(), newStorage()
		a := startAgent(t, s.optionsWith(root, sameDevicePlugin{s.MemoryStager}))
		const refused = `volume pv2 (Filesystem at memory/pv2) is of the same device as volume pv1 (Filesystem at memory/pv1), which is in use: "handle"`
		require.NoError(t, a.Prepare(t.Context(), podWithClaims("u1", "db")))
		require.NoError(t, a.Prepare(t.Context(), podWithClaims("u2", "db")))
		require.ErrorContains(t, a.Prepare(t.Context(), podWithClaims("u3", "logs")), `set up volume "v-logs": `+refused)
		for _, uid := range []string{"u1", "u2", "u3"} {
			require.NoError(t, a.Release(t.Context(), uid))
		}
		require.NoError(t, a.Prepare(t.Context(), podWithClaims("u3", "logs")))
		require.NoError(t, a.Release(t.Context(), "u3"))

		require.ErrorContains(t, a.Prepare(t.Context(), podWithClaims("u4", "db", "logs")), `set up volume "v-logs": `+refused, "both volumes in one pod")
		require.NoError(t, a.Release(t.Context(), "u4"))

		errs := make(chan error, 2)
		for uid, name := range map[string]string{"u5": "db", "u6": "logs"} {
			go func() { errs <- a.Prepare(t.Context(), podWithClaims(uid, name)) }()
		}
		one, other := <-errs, <-errs
		assert.True(t, (one == nil) != (other == nil), "exactly one of two concurrent calls succeeds: %v, %v", one, other)
		require.NoError(t, a.Release(t.Context(), "u5"))
		require.NoError(t, a.Release(t.Context(), "u6"))
		s.checkNothingLeft(t, root)
	})
}

func TestStageErrorReachesAllPodsAndReleaseCancelsStage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		root, s := t.TempDir(), newStorage()
		fault := errors.New("no such device")
		var mu sync.Mutex
		a := startAgent(t, s.optionsWith(root, &volumetest.FaultyPlugin{Plugin: s.MemoryStager, StageFault: func(ctx context.Context, v volume.Volume) error {
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
				err := a.Prepare(t.Context(), podWithClaims(uid, "db"))
				assert.EqualError(t, err, "volumes of pod default/pod-"+uid+`: timed out after 2m3s: stage volume "v-db": no such device`)
			})
		}
		wg.Wait()
		assert.Contains(t, a.recordedEvents()[0], `Warning FailedMount: MountVolume.MountDevice failed for volume "pv1" : no such device`)
		mu.Lock()
		fault = nil
		mu.Unlock()
		time.Sleep(30 * time.Second)
		began := time.Now()
		require.NoError(t, a.Release(t.Context(), "u1"))
		require.NoError(t, a.Release(t.Context(), "u2"))
		assert.Less(t, time.Since(began), time.Second)
		s.checkNothingLeft(t, root)
	})
}

// hangingPlugin is a plugin whose SetUp ignores its context until the test closes a channel.
type hangingPlugin struct {
	*volumetest.MemoryStager
	until chan struct{}
}

func (d hangingPlugin) SetUp(_ context.Context, v volume.Volume) (volume.Mount, error) {
	<-d.until
	return d.MemoryStager.SetUp(context.WithoutCancel(context.TODO()), v)
}

// A volume that the call sets up later is torn down.
func TestReleaseAndRunReturnWhilePluginCallHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		root, s := t.TempDir(), newStorage()
		d := hangingPlugin{s.MemoryStager, make(chan struct{})}
		a := startAgent(t, s.optionsWith(root, d))
		require.ErrorContains(t, a.Prepare(t.Context(), podWithClaims("u1", "db")), `set up volume "v-db": `)
		time.Sleep(10 * time.Second)
		require.ErrorContains(t, a.WaitError("u1"), `the file system does not answer: the plugin does not return`)
		began := time.Now()
		require.ErrorContains(t, a.Release(t.Context(), "u1"), "a call has not returned")
		assert.LessOrEqual(t, time.Since(began), 124*time.Second)
		close(d.until)
		require.NoError(t, a.Release(t.Context(), "u1"))
		s.checkNothingLeft(t, root)
		assert.NotEmpty(t, s.Calls())

		d.until = make(chan struct{})
		a.stop()
		a = startAgent(t, s.optionsWith(root, d))
		go func() { _ = a.Prepare(t.Context(), podWithClaims("u2", "db")) }()
		synctest.Wait()
		began = time.Now()
		a.stop()
		assert.LessOrEqual(t, time.Since(began), 10*time.Second, "Run returns")
		close(d.until)
		synctest.Wait()
	})
}

// Pods with random claims are prepared and released while calls fail and the agent restarts.
func TestRandomOperationsWithFaultsLeaveNothing(t *testing.T) {
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
			o := s.optionsWith(root, f)
			o.WaitTimeout = 5 * time.Second
			a := startAgent(t, o)
			for range 10 {
				var wg sync.WaitGroup
				for i := range 4 {
					uid, claims := fmt.Sprint("u", i), [][]string{{"db"}, {"logs"}, {"db", "logs"}}[r.IntN(3)]
					up := r.IntN(2) == 0
					wg.Go(func() {
						if up {
							_ = a.Prepare(t.Context(), podWithClaims(uid, claims...))
						} else {
							_ = a.Release(t.Context(), uid)
						}
					})
				}
				wg.Wait()
				if r.IntN(4) == 0 {
					a.stop()
					a = startAgent(t, o)
				}
			}
			for i := range 4 {
				for a.Release(t.Context(), fmt.Sprint("u", i)) != nil {
					time.Sleep(time.Second)
				}
			}
			s.checkNothingLeft(t, root)
		})
	}
}
