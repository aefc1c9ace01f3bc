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

// tarpit is a runtime with hanging calls: calls about images with "hung" in their name return when their context ends, and
// those with "deaf" return only when released. The size of its image file system can be set.
type tarpit struct {
	*critest.Runtime
	released chan struct{}

	mu       sync.Mutex // guards all below
	bytes    uint64
	usageErr error
	usages   int
	now      map[string]int // pulls under way
	tried    map[string]int
	slow     []string
	reported []string
}

// errDeaf as usageErr makes calls hang regardless of their context.
var errDeaf = errors.New("deaf")

func newTarpit() *tarpit {
	return &tarpit{
		Runtime:  critest.New(critest.Options{Images: []cri.Image{}}),
		released: make(chan struct{}), now: map[string]int{}, tried: map[string]int{},
	}
}

func (p *tarpit) stick(ctx context.Context, name string) error {
	if strings.Contains(name, "deaf") {
		<-p.released
		return nil
	}
	if strings.Contains(name, "hung") {
		return critest.Hang(ctx)
	}
	return ctx.Err()
}

func (p *tarpit) PullImage(ctx context.Context, i cri.ImageSpec, auth *cri.Auth, s *cri.SandboxConfig) (string, error) {
	p.count(i.Image, 1)
	defer p.count(i.Image, -1)
	if err := p.stick(ctx, i.Image); err != nil {
		return "", err
	}
	return p.Runtime.PullImage(context.WithoutCancel(ctx), i, auth, s)
}

func (p *tarpit) count(image string, n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.now[image] += n
	p.tried[image] += max(n, 0)
}

func (p *tarpit) ImageStatus(ctx context.Context, i cri.ImageSpec) (cri.Image, error) {
	if strings.Contains(i.Image, "status") {
		if err := p.stick(ctx, i.Image); err != nil {
			return cri.Image{}, err
		}
	}
	return p.Runtime.ImageStatus(ctx, i)
}

func (p *tarpit) ImageUsage(ctx context.Context) (cri.ImageUsage, error) {
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

func (p *tarpit) puller(t *testing.T, o images.Options) *images.Puller {
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

// Hung pulls must not block all other pulls: they release their slots, even a single one, and are stopped.
func TestHungPullsReleaseTheirSlots(t *testing.T) {
	for _, parallel := range []int{1, 5} {
		synctest.Test(t, func(t *testing.T) {
			pit := newTarpit()
			puller := pit.puller(t, images.Options{Parallel: parallel})
			var wg sync.WaitGroup
			last := "" // to end
			for i := range 5 {
				wg.Go(func() {
					image := fmt.Sprint("r.io/hung:", i)
					e, _ := ensure(t, puller, image)
					last = image
					assert.Equal(t, "ErrImagePull: the pull was ended: it made no progress for 30m0s", e.Error())
					assert.Equal(t, 10*time.Second, time.Until(e.Retry), "it goes into back-off")
					assert.ErrorIs(t, e, context.DeadlineExceeded)
				})
			}
			synctest.Wait()
			e, took := ensure(t, puller, "r.io/good:1")
			require.Nil(t, e)
			require.LessOrEqual(t, took, 5*time.Minute/time.Duration(parallel), "five hung pulls, a minute each")
			require.Len(t, pit.slow, 5)
			require.Contains(t, pit.slow, "r.io/hung:4 1m0s")
			wg.Wait()
			require.Empty(t, pit.reported, "they were cancelled and returned")
			e, took = ensure(t, puller, last)
			require.Equal(t, images.ReasonImagePullBackOff, e.Reason)
			require.Zero(t, took)
		})
	}
}

// With the kubelet's settings, a slow pull keeps its slot and is never stopped.
func TestHungPullsWithKubeletSettings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pit := newTarpit()
		puller := pit.puller(t, images.Options{Parallel: 1, SlowAfter: -1, PullTimeout: -1, PullLimit: -1})
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
		require.Zero(t, pit.usages)
		require.Empty(t, pit.slow)
		cancel()
		wg.Wait()
	})
}

// A pull must not be stopped while it makes progress, nor last forever because of the progress of others.
func TestPullsEndWithoutProgress(t *testing.T) {
	const minute = time.Minute
	for _, tt := range []struct {
		name     string
		o        images.Options
		grows    time.Duration // for so long the file system grows
		shrinks  bool
		usageErr error
		want     time.Duration
		why      string
	}{
		{name: "none", want: 30 * minute, why: "made no progress for 30m0s"},
		{name: "for an hour", grows: 60 * minute, want: 90 * minute, why: "made no progress for 30m0s"},
		{name: "for ever", grows: 1000 * minute, want: 360 * minute, why: "took longer than 6h0m0s"},
		{name: "images are removed", grows: 1000 * minute, shrinks: true, want: 30 * minute, why: "made no progress for 30m0s"},
		{name: "the runtime cannot say", usageErr: errors.New("unknown method"), want: 360 * minute, why: "took longer than 6h0m0s"},
		{name: "the runtime does not answer", usageErr: context.DeadlineExceeded, want: 30 * minute, why: "made no progress for 30m0s"},
		{name: "the runtime never answers", usageErr: errDeaf, want: 30 * minute, why: "made no progress for 30m0s"},
		{name: "the runtime is not there", usageErr: cri.ErrUnavailable, want: 30 * minute, why: "made no progress for 30m0s"},
		{name: "shorter", o: images.Options{PullTimeout: minute}, want: minute, why: "made no progress for 1m0s"},
		{
			name: "shorter, with progress", o: images.Options{PullTimeout: minute, PullLimit: 3 * minute}, grows: 1000 * minute,
			want: 3 * minute, why: "took longer than 3m0s",
		},
		{name: "limit alone", o: images.Options{PullTimeout: -1}, want: 360 * minute, why: "took longer than 6h0m0s"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				pit := newTarpit()
				pit.bytes, pit.usageErr = 1<<40, tt.usageErr
				puller := pit.puller(t, tt.o)
				ctx, cancel := context.WithTimeout(t.Context(), tt.grows)
				defer cancel()
				go func() {
					for ctx.Err() == nil {
						time.Sleep(time.Second)
						pit.mu.Lock()
						pit.bytes++
						if tt.shrinks {
							pit.bytes -= 2
						}
						pit.mu.Unlock()
					}
				}()
				e, took := ensure(t, puller, "r.io/hung:1")
				cancel()
				close(pit.released)
				time.Sleep(time.Second)
				require.ErrorContains(t, e, tt.why)
				require.InDelta(t, tt.want, took, float64(minute+15*time.Second))
				require.GreaterOrEqual(t, took, tt.want-time.Minute)
				require.LessOrEqual(t, pit.usages, int(took/minute)*10)
			})
		})
	}
}

// A slow pull with progress must be neither stopped nor counted as a failure.
func TestSlowPullWithProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pit := newTarpit()
		puller := pit.puller(t, images.Options{})
		go func() {
			for range 100 { // a layer every 25 minutes
				time.Sleep(25 * time.Minute / 2)
				pit.mu.Lock()
				pit.bytes += 1 << 20
				pit.mu.Unlock()
				if pit.bytes == 20<<20 {
					close(pit.released)
					return
				}
			}
		}()
		e, took := ensure(t, puller, "r.io/deaf:1")
		require.Nil(t, e)
		require.Equal(t, 250*time.Minute, took)
		require.Len(t, pit.slow, 1)
	})
}

// A runtime that ignores cancellation must neither block the pod nor get the same pull again and again; the image of the
// abandoned pull is not open to every pod.
func TestAbandonedPulls(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		pit := newTarpit()
		puller := pit.puller(t, images.Options{Records: dir})
		const image = "r.io/deaf:1"
		e, took := ensure(t, puller, image)
		require.Equal(t, "ErrImagePull: the pull was ended: it made no progress for 30m0s", e.Error())
		require.Equal(t, 30*time.Minute+5*time.Second, took)
		require.Equal(t, []string{
			`PullImage "r.io/deaf:1": has not returned 5s after it was cancelled; abandoned calls: 1`,
		}, pit.reported)
		for range 20 {
			time.Sleep(6 * time.Minute)
			e, took = ensure(t, puller, image)
			require.Equal(t, `ErrImagePull: PullImage "r.io/deaf:1": an earlier call has not returned although it was cancelled`, e.Error())
			require.Zero(t, took)
		}
		require.Equal(t, 1, pit.tried[image])
		require.Len(t, files(t, dir, "pulling"), 1, "it may still come")

		close(pit.released)
		synctest.Wait()
		require.Empty(t, files(t, dir, "pulling"))
		require.Len(t, files(t, dir, "pulled"), 1)
		time.Sleep(6 * time.Minute)
		e, _ = ensure(t, puller, image)
		require.Nil(t, e)
		require.Len(t, pit.reported, 1)
	})
}

// An image from an abandoned pull with the secret of one pod must not be usable by a pod without it.
func TestAbandonedPullIsRecordedWithItsSecret(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		pit := newTarpit()
		puller := pit.puller(t, images.Options{Records: dir})
		const image = "r.io/deaf:1"
		_, err := puller.Ensure(t.Context(), request("p", image, "u"))
		require.ErrorContains(t, err, "no progress")
		close(pit.released)
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

// The number of calls that never return must be bounded, regardless of the requested images.
func TestAbandonedCallsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pit := newTarpit()
		puller := pit.puller(t, images.Options{})
		for i := range 120 {
			e, _ := ensure(t, puller, fmt.Sprint("r.io/deaf:", i))
			if i < 100 {
				require.ErrorContains(t, e, "made no progress for 30m0s")
			} else {
				require.ErrorContains(t, e, "100 other calls have not returned although they were cancelled")
			}
		}
		require.Len(t, pit.tried, 100)
		close(pit.released)
		synctest.Wait()
		e, _ := ensure(t, puller, "r.io/good:1")
		require.Nil(t, e)
	})
}

// A call to the runtime or a credential provider that does not return must not block a pod forever.
func TestCallsHaveTimeouts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pit := newTarpit()
		mute := credential.ProviderFunc(func(ctx context.Context, repository string, _ credential.Pod) ([]credential.Credential, error) {
			return nil, pit.stick(ctx, repository)
		})
		puller := pit.puller(t, images.Options{Providers: []credential.Provider{mute}})

		e, took := ensure(t, puller, "r.io/hung-status:1")
		require.Equal(t, `ImageInspectError: Failed to inspect image "r.io/hung-status:1": context deadline exceeded`, e.Error())
		require.Equal(t, 2*time.Minute, took)
		e, took = ensure(t, puller, "r.io/deaf-status:1")
		require.Equal(t, images.ReasonImageInspectError, e.Reason)
		require.Equal(t, 2*time.Minute+5*time.Second, took)
		e, took = ensure(t, puller, "r.io/deaf-status:1")
		require.ErrorContains(t, e, "an earlier call has not returned")
		require.Zero(t, took)

		pit.reported = nil
		_, took = ensure(t, puller, "r.io/hung:1")
		require.Equal(t, 35*time.Minute, took, "the credentials, and the pull without any")
		require.Equal(t, []string{"context deadline exceeded"}, pit.reported)
		close(pit.released)
	})
}
