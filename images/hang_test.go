// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package images_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/cri/critest"
	"github.com/seed81659283/nodeagent/images"
	"github.com/seed81659283/nodeagent/images/credential"
)

// hangingRuntime is a runtime with hanging calls: calls about images with "hung" in their name return when their context ends, and
// those with "deaf" return only when released. The size of its image file system can be set.
type hangingRuntime struct {
	*critest.Runtime
	released chan struct{}

	mu         sync.Mutex // guards the fields below
	bytes      uint64
	usageErr   error
	usages     int
	running    map[string]int // running pulls
	pullCounts map[string]int
	slow       []string
	reported   []string
}

// errDeaf as usageErr makes calls hang regardless of their context.
var errDeaf = errors.New("deaf")

func newHangingRuntime() *hangingRuntime {
	return &hangingRuntime{
		Runtime:  critest.New(critest.Options{Images: []cri.Image{}}),
		released: make(chan struct{}), running: map[string]int{}, pullCounts: map[string]int{},
	}
}

func (p *hangingRuntime) hang(ctx context.Context, name string) error {
	if strings.Contains(name, "deaf") {
		<-p.released
		return nil
	}
	if strings.Contains(name, "hung") {
		return critest.Hang(ctx)
	}
	return ctx.Err()
}

func (p *hangingRuntime) PullImage(ctx context.Context, i cri.ImageSpec, auth *cri.Auth, s *cri.SandboxConfig) (string, error) {
	p.countPull(i.Image, 1)
	defer p.countPull(i.Image, -1)
	if err := p.hang(ctx, i.Image); err != nil {
		return "", err
	}
	return p.Runtime.PullImage(context.WithoutCancel(ctx), i, auth, s)
}

func (p *hangingRuntime) countPull(image string, n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.running[image] += n
	p.pullCounts[image] += max(n, 0)
}

func (p *hangingRuntime) ImageStatus(ctx context.Context, i cri.ImageSpec) (cri.Image, error) {
	if strings.Contains(i.Image, "status") {
		if err := p.hang(ctx, i.Image); err != nil {
			return cri.Image{}, err
		}
	}
	return p.Runtime.ImageStatus(ctx, i)
}

func (p *hangingRuntime) ImageUsage(ctx context.Context) (cri.ImageUsage, error) {
	p.mu.Lock()
	p.usages++
	bytes, err := p.bytes, p.usageErr
	p.mu.Unlock()
	if errors.Is(err, errDeaf) {
		<-p.released
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return cri.ImageUsage{}, critest.Hang(ctx)
	}
	return cri.ImageUsage{Images: []cri.FilesystemUsage{{UsedBytes: &bytes}}}, err
}

func (p *hangingRuntime) newPuller(t *testing.T, o images.Options) *images.Puller {
	t.Helper()
	o.Hooks.Slow = func(r images.Request, after time.Duration) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.slow = append(p.slow, fmt.Sprint(r.Image, " ", after))
	}
	o.Hooks.Error = func(err error) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.reported = append(p.reported, err.Error())
	}
	puller, err := images.New(p, p, o)
	require.NoError(t, err)
	return puller
}

// ensure calls Ensure and returns its error and duration.
func ensure(t *testing.T, p *images.Puller, image string) (*images.Error, time.Duration) {
	t.Helper()
	began := time.Now()
	_, err := p.Ensure(t.Context(), request("pod-of-"+image, image, ""))
	e, _ := errors.AsType[*images.Error](err)
	require.Equal(t, err == nil, e == nil, err)
	return e, time.Since(began)
}

// Hung pulls must not block other pulls, even with a single slot: each releases its slot after SlowAfter and is stopped
// after PullTimeout.
func TestHungPullReleasesItsSlot(t *testing.T) {
	for _, parallel := range []int{1, 5} {
		synctest.Test(t, func(t *testing.T) {
			rt := newHangingRuntime()
			puller := rt.newPuller(t, images.Options{Parallel: parallel})
			var wg sync.WaitGroup
			last := "" // the last pull to end
			for i := range 5 {
				wg.Go(func() {
					image := fmt.Sprint("r.io/hung:", i)
					e, _ := ensure(t, puller, image)
					last = image
					assert.Equal(t, "ErrImagePull: the pull was ended: it made no progress for 30m0s", e.Error())
					assert.Equal(t, 10*time.Second, time.Until(e.Retry), "a hung pull starts a back-off")
					assert.ErrorIs(t, e, context.DeadlineExceeded)
				})
			}
			synctest.Wait()
			e, took := ensure(t, puller, "r.io/good:1")
			require.Nil(t, e)
			require.LessOrEqual(t, took, 5*time.Minute/time.Duration(parallel), "five hung pulls hold a slot for a minute each")
			require.Len(t, rt.slow, 5)
			require.Contains(t, rt.slow, "r.io/hung:4 1m0s")
			wg.Wait()
			require.Empty(t, rt.reported, "the hung pulls have returned after their cancellation")
			e, took = ensure(t, puller, last)
			require.Equal(t, images.ReasonImagePullBackOff, e.Reason)
			require.Zero(t, took)
		})
	}
}

// With the kubelet's settings, a slow pull keeps its slot and is never stopped.
func TestHungPullKeepsItsSlotWithKubeletSettings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := newHangingRuntime()
		puller := rt.newPuller(t, images.Options{Parallel: 1, SlowAfter: -1, PullTimeout: -1, PullLimit: -1})
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() {
			_, err := puller.Ensure(ctx, request("p", "r.io/hung:1", ""))
			assert.Equal(t, context.Canceled, err)
		})
		synctest.Wait()
		impatient, stop := context.WithTimeout(t.Context(), 24*time.Hour)
		defer stop()
		_, err := puller.Ensure(impatient, request("p", "r.io/good:1", ""))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Zero(t, rt.usages)
		require.Empty(t, rt.slow)
		cancel()
		wg.Wait()
	})
}

// A pull must not be stopped while it makes progress, nor last forever because of the progress of other pulls.
func TestPullStopsWithoutProgress(t *testing.T) {
	const minute = time.Minute
	for _, tt := range []struct {
		name     string
		o        images.Options
		grows    time.Duration // time during which the file system grows
		shrinks  bool
		usageErr error
		want     time.Duration
		why      string
	}{
		{name: "no progress", want: 30 * minute, why: "made no progress for 30m0s"},
		{name: "progress for one hour", grows: 60 * minute, want: 90 * minute, why: "made no progress for 30m0s"},
		{name: "endless progress", grows: 1000 * minute, want: 360 * minute, why: "took longer than 6h0m0s"},
		{name: "file system shrinks", grows: 1000 * minute, shrinks: true, want: 30 * minute, why: "made no progress for 30m0s"},
		{name: "usage call is not supported", usageErr: errors.New("unknown method"), want: 360 * minute, why: "took longer than 6h0m0s"},
		{name: "usage call hangs", usageErr: context.DeadlineExceeded, want: 30 * minute, why: "made no progress for 30m0s"},
		{name: "usage call ignores its context", usageErr: errDeaf, want: 30 * minute, why: "made no progress for 30m0s"},
		{name: "unavailable runtime", usageErr: cri.ErrUnavailable, want: 30 * minute, why: "made no progress for 30m0s"},
		{name: "PullTimeout of a minute without progress", o: images.Options{PullTimeout: minute}, want: minute, why: "made no progress for 1m0s"},
		{
			name: "PullLimit of three minutes with progress", o: images.Options{PullTimeout: minute, PullLimit: 3 * minute}, grows: 1000 * minute,
			want: 3 * minute, why: "took longer than 3m0s",
		},
		{name: "PullTimeout disabled", o: images.Options{PullTimeout: -1}, want: 360 * minute, why: "took longer than 6h0m0s"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rt := newHangingRuntime()
				rt.bytes, rt.usageErr = 1<<40, tt.usageErr
				puller := rt.newPuller(t, tt.o)
				ctx, cancel := context.WithTimeout(t.Context(), tt.grows)
				defer cancel()
				go func() {
					for ctx.Err() == nil {
						time.Sleep(time.Second)
						rt.mu.Lock()
						rt.bytes++
						if tt.shrinks {
							rt.bytes -= 2
						}
						rt.mu.Unlock()
					}
				}()
				e, took := ensure(t, puller, "r.io/hung:1")
				cancel()
				close(rt.released)
				time.Sleep(time.Second)
				require.ErrorContains(t, e, tt.why)
				require.InDelta(t, tt.want, took, float64(minute+15*time.Second))
				require.GreaterOrEqual(t, took, tt.want-time.Minute)
				require.LessOrEqual(t, rt.usages, int(took/minute)*10)
			})
		})
	}
}

// A slow pull with progress is neither stopped nor counted as a failure.
func TestSlowPullWithProgressSucceeds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := newHangingRuntime()
		puller := rt.newPuller(t, images.Options{})
		go func() {
			for range 100 { // a layer every 25 minutes
				time.Sleep(25 * time.Minute / 2)
				rt.mu.Lock()
				rt.bytes += 1 << 20
				rt.mu.Unlock()
				if rt.bytes == 20<<20 {
					close(rt.released)
					return
				}
			}
		}()
		e, took := ensure(t, puller, "r.io/deaf:1")
		require.Nil(t, e)
		require.Equal(t, 250*time.Minute, took)
		require.Len(t, rt.slow, 1)
	})
}

// A runtime that ignores cancellation must not block the pod, and must not receive the same pull again. The intent stays
// until the abandoned pull returns.
func TestAbandonedPullIsNotRepeated(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		rt := newHangingRuntime()
		puller := rt.newPuller(t, images.Options{Records: dir})
		const image = "r.io/deaf:1"
		e, took := ensure(t, puller, image)
		require.Equal(t, "ErrImagePull: the pull was ended: it made no progress for 30m0s", e.Error())
		require.Equal(t, 30*time.Minute+5*time.Second, took)
		require.Equal(t, []string{
			`PullImage "r.io/deaf:1": has not returned 5s after it was cancelled; abandoned calls: 1`,
		}, rt.reported)
		for range 20 {
			time.Sleep(6 * time.Minute)
			e, took = ensure(t, puller, image)
			require.Equal(t, `ErrImagePull: PullImage "r.io/deaf:1": an earlier call has not returned although it was cancelled`, e.Error())
			require.Zero(t, took)
		}
		require.Equal(t, 1, rt.pullCounts[image])
		require.Len(t, readRecords(t, dir, "pulling"), 1, "the abandoned pull may still complete")

		close(rt.released)
		synctest.Wait()
		require.Empty(t, readRecords(t, dir, "pulling"))
		require.Len(t, readRecords(t, dir, "pulled"), 1)
		time.Sleep(6 * time.Minute)
		e, _ = ensure(t, puller, image)
		require.Nil(t, e)
		require.Len(t, rt.reported, 1)
	})
}

// An image from an abandoned pull with the secret of one pod must not be usable by a pod without the secret.
func TestAbandonedPullRecordsPodSecret(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		rt := newHangingRuntime()
		puller := rt.newPuller(t, images.Options{Records: dir})
		const image = "r.io/deaf:1"
		_, err := puller.Ensure(t.Context(), request("p", image, "u"))
		require.ErrorContains(t, err, "no progress")
		close(rt.released)
		synctest.Wait()
		stranger := request("stranger", image, "")
		stranger.Policy = images.PullNever
		_, err = puller.Ensure(t.Context(), stranger)
		require.ErrorContains(t, err, images.ReasonErrImageNeverPull)
		owner := request("p", image, "u")
		owner.Policy = images.PullNever
		_, err = puller.Ensure(t.Context(), owner)
		require.NoError(t, err)
	})
}

// The number of calls that never return is bounded, for any requested images.
func TestAbandonedCallsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := newHangingRuntime()
		puller := rt.newPuller(t, images.Options{})
		for i := range 120 {
			e, _ := ensure(t, puller, fmt.Sprint("r.io/deaf:", i))
			if i < 100 {
				require.ErrorContains(t, e, "made no progress for 30m0s")
			} else {
				require.ErrorContains(t, e, "100 other calls have not returned although they were cancelled")
			}
		}
		require.Len(t, rt.pullCounts, 100)
		close(rt.released)
		synctest.Wait()
		e, _ := ensure(t, puller, "r.io/good:1")
		require.Nil(t, e)
	})
}

// A call to the runtime or a credential provider that does not return must not block a pod forever.
func TestRuntimeAndProviderCallsTimeOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := newHangingRuntime()
		mute := credential.ProviderFunc(func(ctx context.Context, repository string, _ credential.Pod) ([]credential.Credential, error) {
			return nil, rt.hang(ctx, repository)
		})
		puller := rt.newPuller(t, images.Options{Providers: []credential.Provider{mute}})

		e, took := ensure(t, puller, "r.io/hung-status:1")
		require.Equal(t, `ImageInspectError: Failed to inspect image "r.io/hung-status:1": context deadline exceeded`, e.Error())
		require.Equal(t, 2*time.Minute, took)
		e, took = ensure(t, puller, "r.io/deaf-status:1")
		require.Equal(t, images.ReasonImageInspectError, e.Reason)
		require.Equal(t, 2*time.Minute+5*time.Second, took)
		e, took = ensure(t, puller, "r.io/deaf-status:1")
		require.ErrorContains(t, e, "an earlier call has not returned")
		require.Zero(t, took)

		rt.reported = nil
		_, took = ensure(t, puller, "r.io/hung:1")
		require.Equal(t, 35*time.Minute, took, "5 m for the credentials and 30 m for an anonymous pull")
		require.Equal(t, []string{"context deadline exceeded"}, rt.reported)
		close(rt.released)
	})
}
