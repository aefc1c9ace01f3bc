// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package images_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
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

// pullRecorder is a runtime that records its pulls. Each takes a second.
type pullRecorder struct {
	mu         sync.Mutex // guards the fields below
	users      []string   // user of each pull; empty if anonymous
	running    int
	maxRunning int
	refused    map[string]bool // users whose pulls fail
}

func (p *pullRecorder) pull(ctx context.Context, i cri.ImageSpec, auth *cri.Auth) (cri.Image, error) {
	p.mu.Lock()
	user := ""
	if auth != nil {
		user = auth.Username
	}
	p.users = append(p.users, user)
	p.running++
	p.maxRunning = max(p.maxRunning, p.running)
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.running--
	}()
	select {
	case <-ctx.Done():
		return cri.Image{}, ctx.Err()
	case <-time.After(time.Second):
	}
	if p.refused[user] {
		return cri.Image{}, errors.New("refused")
	}
	return critest.NewImage(i.Image, 1), nil
}

func newPuller(t *testing.T, p *pullRecorder, o images.Options) (*images.Puller, *critest.Runtime) {
	t.Helper()
	rt := critest.New(critest.Options{Images: []cri.Image{}, Pull: p.pull})
	puller, err := images.New(rt, rt, o)
	require.NoError(t, err)
	return puller, rt
}

// request returns a request for an image, with a pull secret unless user is empty.
func request(pod, image, user string) images.Request {
	r := images.Request{Pod: credential.Pod{UID: pod, Namespace: "ns", Name: pod}, Image: image, Policy: images.PullIfNotPresent}
	if user != "" {
		r.Secrets = []credential.Secret{newSecret("of-"+pod, []string{"r.io", user + ":password"})}
	}
	return r
}

// Concurrent requests for the same image with the same login share one pull. Afterwards each pod's own secret is recorded.
func TestEnsureSharesPulls(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		var p pullRecorder
		var shared atomic.Int32
		puller, _ := newPuller(t, &p, images.Options{Records: dir, Hooks: images.Hooks{
			Pulled: func(_ images.Request, p images.Pull) {
				assert.Equal(t, time.Second, p.Took)
				assert.Equal(t, 1, p.Attempts)
				if p.Shared {
					shared.Add(1)
				}
			},
		}})
		var wg sync.WaitGroup
		for i := range 10 {
			wg.Go(func() {
				_, err := puller.Ensure(t.Context(), request(fmt.Sprint("p", i), "r.io/app:v1", "u"))
				assert.NoError(t, err)
			})
		}
		wg.Wait()
		require.Equal(t, []string{"u"}, p.users)
		require.EqualValues(t, 9, shared.Load())

		p.refused = map[string]bool{"v": true}
		for i := range 10 {
			r := request(fmt.Sprint("p", i), "r.io/app:v1", "v") // the same secrets with another login
			_, err := puller.Ensure(t.Context(), r)
			require.NoError(t, err)
		}
		_, err := puller.Ensure(t.Context(), request("other", "r.io/app:v1", "w"))
		require.NoError(t, err)
		require.Equal(t, []string{"u", "w"}, p.users)
	})
}

func TestEnsureDoesNotSharePullsBetweenLogins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := pullRecorder{refused: map[string]bool{"v": true}}
		puller, _ := newPuller(t, &p, images.Options{})
		var wg sync.WaitGroup
		for _, user := range []string{"", "u", "v"} {
			wg.Go(func() {
				_, err := puller.Ensure(t.Context(), request("p"+user, "r.io/app:v1", user))
				assert.Equal(t, user == "v", err != nil)
			})
		}
		wg.Wait()
		require.ElementsMatch(t, []string{"", "u", "v"}, p.users)
	})
}

// Pods that shared a failed pull have separate back-offs.
func TestSharedFailureHasSeparateBackOffs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := pullRecorder{refused: map[string]bool{"": true}}
		puller, _ := newPuller(t, &p, images.Options{})
		var wg sync.WaitGroup
		for _, pod := range []string{"a", "b"} {
			wg.Go(func() {
				for _, reason := range []string{images.ReasonErrImagePull, images.ReasonImagePullBackOff} {
					_, err := puller.Ensure(t.Context(), request(pod, "r.io/app:v1", ""))
					e, ok := errors.AsType[*images.Error](err)
					if assert.True(t, ok) {
						assert.Equal(t, reason, e.Reason)
						assert.Equal(t, 10*time.Second, time.Until(e.Retry))
					}
				}
			})
		}
		wg.Wait()
		require.Len(t, p.users, 1)
	})
}

func TestEnsurePullsInParallel(t *testing.T) {
	for parallel, want := range map[int]time.Duration{0: 2 * time.Second, 1: 10 * time.Second, 3: 4 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			var p pullRecorder
			puller, _ := newPuller(t, &p, images.Options{Parallel: parallel})
			var wg sync.WaitGroup
			began := time.Now()
			for i := range 10 {
				wg.Go(func() {
					_, err := puller.Ensure(t.Context(), request("p", fmt.Sprint("r.io/app:", i), ""))
					assert.NoError(t, err)
				})
			}
			wg.Wait()
			assert.Equal(t, want, time.Since(began))
			if parallel == 0 {
				parallel = 5
			}
			assert.Equal(t, parallel, p.maxRunning)
		})
	}
}

// Ten pulls start at once, then five per second. With the kubelet's setting, pulls above the rate fail.
func TestEnsureDefaultRateLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := critest.New(critest.Options{Images: []cri.Image{}})
		puller, err := images.New(rt, rt, images.Options{LimitWait: -1})
		require.NoError(t, err)
		pulled := 0
		for i := range 20 {
			if i > 12 {
				time.Sleep(200 * time.Millisecond)
			}
			if _, err := puller.Ensure(t.Context(), request(fmt.Sprint("p", i), "r.io/app:v1", "")); err == nil {
				pulled++
				require.NoError(t, rt.RemoveImage(t.Context(), cri.ImageSpec{Image: "r.io/app:v1"}))
			} else {
				require.ErrorContains(t, err, "ErrImagePull: pull QPS exceeded")
			}
		}
		require.Equal(t, 10+7, pulled)
	})
}

// A cancelled request no longer waits for a slot, or leaves its pull to another request. It starts no back-off.
func TestCancelledEnsureStartsNoBackOff(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		var p pullRecorder
		puller, _ := newPuller(t, &p, images.Options{Parallel: 1, Records: dir})
		leader, cancelLeader := context.WithCancel(t.Context())
		queued, cancelQueued := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for _, c := range []struct {
			ctx   context.Context
			image string
			want  error
		}{
			{leader, "r.io/app:v1", context.Canceled},
			{queued, "r.io/app:v2", context.Canceled},
			{t.Context(), "r.io/app:v1", nil},
		} {
			wg.Go(func() {
				_, err := puller.Ensure(c.ctx, request("p", c.image, ""))
				assert.Equal(t, c.want, err)
			})
			synctest.Wait()
		}
		cancelQueued()
		synctest.Wait()
		cancelLeader()
		wg.Wait()
		require.Len(t, p.users, 2)

		_, err := puller.Ensure(t.Context(), request("p", "r.io/app:v2", ""))
		require.NoError(t, err, "a cancelled request starts no back-off")
		require.Empty(t, readRecords(t, dir, "pulling"))
	})
}

// A deadline of the caller that expires counts as a failed pull.
func TestExpiredDeadlineCountsAsFailedPull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p pullRecorder
		puller, _ := newPuller(t, &p, images.Options{})
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		_, err := puller.Ensure(ctx, request("p", "r.io/app:v1", ""))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		e, ok := errors.AsType[*images.Error](err)
		require.True(t, ok)
		require.Equal(t, images.ReasonErrImagePull, e.Reason)
		require.Equal(t, 10*time.Second, time.Until(e.Retry))
	})
}

// recordingRuntime is a runtime that records its calls and can return errors.
type recordingRuntime struct {
	*critest.Runtime
	calls      []string
	spec       cri.ImageSpec
	sandbox    *cri.SandboxConfig
	inspectErr error
}

func (s *recordingRuntime) ImageStatus(ctx context.Context, i cri.ImageSpec) (cri.Image, error) {
	s.calls = append(s.calls, "ImageStatus "+i.Image)
	if s.inspectErr != nil {
		return cri.Image{}, &cri.Error{Op: "ImageStatus", ID: i.Image, Err: s.inspectErr}
	}
	return s.Runtime.ImageStatus(ctx, i)
}

func (s *recordingRuntime) PullImage(ctx context.Context, i cri.ImageSpec, auth *cri.Auth, sandbox *cri.SandboxConfig) (string, error) {
	s.calls = append(s.calls, "PullImage "+i.Image)
	s.spec, s.sandbox = i, sandbox
	return s.Runtime.PullImage(ctx, i, auth, sandbox)
}

// With PullAlways the image is not inspected before the pull. The pull has all fields of the request.
func TestPullAlwaysPullsWithoutInspection(t *testing.T) {
	s := &recordingRuntime{Runtime: critest.New(critest.Options{Images: []cri.Image{}})}
	puller, err := images.New(s, s, images.Options{})
	require.NoError(t, err)
	sandbox := &cri.SandboxConfig{}
	image, err := puller.Ensure(t.Context(), images.Request{
		Image: "r.io/app", Policy: images.PullAlways, RuntimeHandler: "kata",
		Annotations: map[string]string{"a": "b"}, Sandbox: sandbox,
	})
	require.NoError(t, err)
	assert.Equal(t, []string{"PullImage r.io/app:latest", "ImageStatus " + image.ID}, s.calls)
	assert.Equal(t, cri.ImageSpec{
		Image: "r.io/app:latest", UserSpecifiedImage: "r.io/app", RuntimeHandler: "kata", Annotations: map[string]string{"a": "b"},
	}, s.spec)
	assert.Same(t, sandbox, s.sandbox)
}

func TestInspectErrorFailsEnsure(t *testing.T) {
	s := &recordingRuntime{Runtime: critest.New(critest.Options{Images: []cri.Image{}}), inspectErr: errors.New("database is locked")}
	dir := t.TempDir()
	puller, err := images.New(s, s, images.Options{Records: dir})
	require.NoError(t, err)
	for _, policy := range []images.Policy{images.PullIfNotPresent, images.PullNever, images.PullAlways} {
		r := request("p", "r.io/app:v1", "u")
		r.Policy = policy
		_, err := puller.Ensure(t.Context(), r)
		e, ok := errors.AsType[*images.Error](err)
		require.True(t, ok)
		assert.Equal(t, images.ReasonImageInspectError, e.Reason)
		assert.ErrorIs(t, err, s.inspectErr)
		assert.Contains(t, e.Error(), `Failed to inspect image "r.io/app:v1"`)
	}
	// The pulled image does not count as preloaded, although its inspection failed.
	s.inspectErr = nil
	r := request("other", "r.io/app:v1", "")
	r.Policy = images.PullNever
	_, err = puller.Ensure(t.Context(), r)
	require.ErrorContains(t, err, images.ReasonErrImageNeverPull)
}

// If the intent cannot be written, no pull starts, because access to the image could not be verified later.
func TestEnsureDoesNotPullWithoutIntent(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	s := &recordingRuntime{Runtime: critest.New(critest.Options{Images: []cri.Image{}})}
	puller, err := images.New(s, s, images.Options{Records: file})
	require.NoError(t, err)
	_, err = puller.Ensure(t.Context(), request("p", "r.io/app:v1", ""))
	require.ErrorContains(t, err, `ErrImagePull: record the pull of image "r.io/app:v1"`)
	assert.Equal(t, []string{"ImageStatus r.io/app:v1"}, s.calls)
}

// Errors and logs contain no password, even if the error of the runtime does.
func TestErrorsAndLogsHoldNoPasswords(t *testing.T) {
	var log bytes.Buffer
	rt := critest.New(critest.Options{
		Images: []cri.Image{},
		Pull: func(_ context.Context, _ cri.ImageSpec, auth *cri.Auth) (cri.Image, error) {
			return cri.Image{}, fmt.Errorf("GET https://%s:%s@r.io/: %w", auth.Username, auth.Password, cri.ErrUnavailable)
		},
	})
	var reported []any
	puller, err := images.New(rt, rt, images.Options{
		Records: t.TempDir(),
		Logger:  slog.New(slog.NewJSONHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})),
		Hooks: images.Hooks{
			Pulling: func(r images.Request) { reported = append(reported, r) },
			Failed:  func(r images.Request, err *images.Error) { reported = append(reported, r, err) },
			Error:   func(err error) { reported = append(reported, err) },
		},
	})
	require.NoError(t, err)
	const word = "tops3cr3t"
	r := request("p", "r.io/app:v1", "")
	r.Secrets = []credential.Secret{
		newSecret("good", []string{"r.io", "u:" + word}),
		{Data: []byte(`{"auths":{"r.io":{"auth":"` + word + `"}}}`)}, // broken
	}
	for range 2 {
		_, err = puller.Ensure(t.Context(), r)
		require.Error(t, err)
		require.ErrorIs(t, err, cri.ErrUnavailable)
		reported = append(reported, err)
		for e := err; e != nil; e = errors.Unwrap(e) {
			assert.NotContains(t, e.Error(), word)
		}
	}
	require.Len(t, reported, (1+1+2+1)+(2+1), "the credentials are not looked up during a back-off")
	slog.New(slog.NewJSONHandler(&log, nil)).Info("m", "reported", reported)
	slog.New(slog.NewTextHandler(&log, nil)).Info("m", "reported", reported)
	text := fmt.Sprintf("%v %+v %#v %s", reported, reported, reported, log.String())
	assert.NotContains(t, text, word)
	assert.Contains(t, text, "GET https://u:[password]@r.io/: runtime unavailable")
}

func TestNewRefusesInvalidOptions(t *testing.T) {
	rt := critest.New(critest.Options{})
	_, err := images.New(nil, rt, images.Options{})
	require.ErrorContains(t, err, "argument images is nil")
	_, err = images.New(rt, nil, images.Options{})
	require.ErrorContains(t, err, "argument puller is nil")
	for want, o := range map[string]images.Options{
		`verify: "Sometimes" is none`:                {Verify: "Sometimes"},
		`verify: AlwaysVerify needs Options.Records`: {Verify: images.AlwaysVerify},
		`allowlist: "r.io/app:v1": want`:             {Verify: images.NeverVerifyAllowlistedImages, Allowlist: []string{"r.io/app:v1"}},
		`allowlist: "r.io/app*": want`:               {Verify: images.NeverVerifyAllowlistedImages, Allowlist: []string{"r.io/app*"}},
		`allowlist: "r.io/*/app/*": want`:            {Verify: images.NeverVerifyAllowlistedImages, Allowlist: []string{"r.io/*/app/*"}},
		`allowlist: "/*": want`:                      {Verify: images.NeverVerifyAllowlistedImages, Allowlist: []string{"/*"}},
		`allowlist: "*": want`:                       {Verify: images.NeverVerifyAllowlistedImages, Allowlist: []string{"*"}},
		`allowlist: " r.io/app": want`:               {Verify: images.NeverVerifyAllowlistedImages, Allowlist: []string{" r.io/app"}},
		`allowlist: ["r.io/app"]: only valid with NeverVerifyAllowlistedImages, and verify is NeverVerifyPreloadedImages`: {Allowlist: []string{"r.io/app"}},
		`NeverVerifyAllowlistedImages needs Options.Records`:                                                              {Verify: images.NeverVerifyAllowlistedImages},
	} {
		_, err := images.New(rt, rt, o)
		assert.ErrorContains(t, err, want)
	}
}

func TestDefaultPolicyByTag(t *testing.T) {
	for image, want := range map[string]images.Policy{
		"busybox":                  images.PullAlways,
		"busybox:latest":           images.PullAlways,
		"busybox:1":                images.PullIfNotPresent,
		"r.io:5000/x":              images.PullAlways,
		"busybox@" + digest:        images.PullIfNotPresent,
		"busybox:latest@" + digest: images.PullAlways,
		"NOT A NAME":               images.PullIfNotPresent,
	} {
		assert.Equal(t, want, images.DefaultPolicy(image), image)
	}
}

const digest = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
