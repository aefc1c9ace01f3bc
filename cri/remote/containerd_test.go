// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package remote_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/cri/critest"
	"github.com/seed81659283/nodeagent/cri/remote"
	"github.com/seed81659283/nodeagent/internal/lab"
)

const waitLimit = 30 * time.Second

// TestIntegrationContainerd runs the conformance suite against containerd.
func TestIntegrationContainerd(t *testing.T) {
	l := lab.Start(t)
	// Cases clean up through the client they have at their end: it is closed only after all of them.
	open := func() cri.Runtime { return dialClient(t, l.Endpoint(), remote.Options{}) }
	critest.TestRuntime(t, critest.Fixture{
		New:             func(*testing.T) cri.Runtime { return open() },
		Reopen:          func(*testing.T, cri.Runtime) cri.Runtime { return open() },
		Image:           lab.BusyboxImage,
		IsolatedNetwork: true,
		Logs:            true,
	})
}

// realPod is a pod with one container on containerd.
type realPod struct {
	client    *remote.Client
	sandbox   string
	container string
	config    *cri.SandboxConfig
	logPath   string
}

// startPod runs a shell script as a pod on the host network until the end of the test.
func startPod(t *testing.T, client *remote.Client, script string) realPod {
	t.Helper()
	uid := strings.ToLower(strings.NewReplacer("/", "-", " ", "-").Replace(t.Name()))
	p := realPod{client: client, config: &cri.SandboxConfig{
		Pod:          cri.PodIdentity{UID: uid, Name: "remote", Namespace: "remote-test"},
		LogDirectory: t.TempDir(),
		Labels:       map[string]string{cri.LabelPodUID: uid},
		CgroupParent: "/nodeagent-" + uid, // containerd has no stats of a sandbox without cgroup parent
		Security:     cri.SandboxSecurity{Namespaces: cri.NamespaceOptions{Network: cri.NamespaceNode}},
	}}
	t.Cleanup(func() {
		for _, pattern := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/*"} {
			dirs, _ := filepath.Glob(pattern + p.config.CgroupParent)
			for _, dir := range dirs {
				assert.NoError(t, os.Remove(dir))
			}
		}
	})
	var err error
	p.sandbox, err = client.RunSandbox(t.Context(), p.config)
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), waitLimit)
		defer cancel()
		assert.NoError(t, client.StopSandbox(ctx, p.sandbox))
		assert.NoError(t, client.RemoveSandbox(ctx, p.sandbox))
	})
	p.logPath = filepath.Join(p.config.LogDirectory, "main.log")
	p.container, err = client.CreateContainer(t.Context(), p.sandbox, &cri.ContainerConfig{
		Name:     "main",
		Image:    cri.ImageSpec{Image: lab.BusyboxImage},
		Command:  []string{"/bin/sh", "-c", script},
		Env:      []cri.EnvVar{{Name: "PATH", Value: "/bin"}},
		Labels:   map[string]string{cri.LabelPodUID: uid},
		LogPath:  "main.log",
		Security: cri.ContainerSecurity{Namespaces: cri.NamespaceOptions{Network: cri.NamespaceNode}},
		Resources: &cri.Resources{
			CPUShares: 64, MemoryLimit: 64 << 20,
		},
	}, p.config)
	require.NoError(t, err)
	require.NoError(t, client.StartContainer(t.Context(), p.container))
	return p
}

const counting = `i=0; while :; do i=$((i+1)); echo line $i; sleep 0.05; done`

func TestIntegrationContainerdVersionAndStatus(t *testing.T) {
	client := dialClient(t, lab.Start(t).Endpoint(), remote.Options{})
	require.NoError(t, client.Check(t.Context()))

	v, err := client.Version(t.Context())
	require.NoError(t, err)
	assert.Equal(t, "containerd", v.RuntimeName)
	assert.Equal(t, "v1", v.RuntimeAPIVersion)

	s, err := client.Status(t.Context())
	require.NoError(t, err)
	for _, typ := range []string{cri.ConditionRuntimeReady, cri.ConditionNetworkReady} {
		c, ok := s.Condition(typ)
		assert.True(t, ok && c.Status, "%s: %+v", typ, c)
	}
	_, err = client.CgroupDriver(t.Context())
	require.NoError(t, err)
}

func TestIntegrationContainerdExec(t *testing.T) {
	p := startPod(t, dialClient(t, lab.Start(t).Endpoint(), remote.Options{}), counting)
	for code := range 3 {
		r, err := p.client.ExecSync(t.Context(), p.container,
			[]string{"/bin/sh", "-c", "echo out; echo err >&2; exit $0", string(rune('0' + code))}, 0)
		require.NoError(t, err)
		assert.Equal(t, cri.ExecResult{Stdout: []byte("out\n"), Stderr: []byte("err\n"), ExitCode: code}, r)
	}

	_, err := p.client.ExecSync(t.Context(), p.container, []string{"/bin/sleep", "60"}, 10*time.Millisecond)
	assert.ErrorIs(t, err, context.DeadlineExceeded)
	_, err = p.client.ExecSync(t.Context(), p.container, []string{"/does/not/exist"}, time.Second)
	assert.Error(t, err)
	_, err = p.client.ExecSync(t.Context(), "nothing", []string{"/bin/true"}, time.Second)
	assert.ErrorIs(t, err, cri.ErrNotFound)
}

func TestIntegrationContainerdSessions(t *testing.T) {
	p := startPod(t, dialClient(t, lab.Start(t).Endpoint(), remote.Options{}), counting)
	for name, open := range map[string]func() (string, error){
		"exec": func() (string, error) {
			return p.client.Exec(t.Context(), p.container, []string{"/bin/true"}, cri.StreamOptions{Stdout: true})
		},
		"attach": func() (string, error) {
			return p.client.Attach(t.Context(), p.container, cri.StreamOptions{Stdout: true, Stderr: true})
		},
		"portforward": func() (string, error) {
			return p.client.PortForward(t.Context(), p.sandbox, []int32{80})
		},
	} {
		url, err := open()
		require.NoError(t, err, name)
		assert.Regexp(t, "^http://127.0.0.1:[0-9]+/"+name+"/", url)
	}
	_, err := p.client.Exec(t.Context(), p.container, []string{"/bin/sh"},
		cri.StreamOptions{Stdout: true, Stderr: true, TTY: true})
	assert.ErrorContains(t, err, "tty and stderr")
}

func TestIntegrationContainerdEvents(t *testing.T) {
	client := dialClient(t, lab.Start(t).Endpoint(), remote.Options{})
	ctx, cancel := context.WithCancel(t.Context())
	events, ended := make(chan cri.Event, 1000), make(chan error, 1)
	go func() {
		ended <- client.StreamEvents(ctx, func(e cri.Event) error { events <- e; return nil })
	}()
	for begun, i := false, uint32(0); !begun; i++ { // no event reports that the stream has started
		pod := cri.PodIdentity{UID: "remote-events", Name: "events", Namespace: "remote-test"}
		id, err := client.RunSandbox(ctx, &cri.SandboxConfig{
			Pod: pod, Attempt: i, Security: cri.SandboxSecurity{Namespaces: cri.NamespaceOptions{Network: cri.NamespaceNode}},
		})
		require.NoError(t, err)
		require.NoError(t, client.StopSandbox(ctx, id))
		require.NoError(t, client.RemoveSandbox(ctx, id))
		select {
		case <-events:
			begun = true
		case <-time.After(100 * time.Millisecond):
			require.Less(t, i, uint32(100), "the stream has started")
		}
	}
	p := startPod(t, client, "exit 3")
	for {
		select {
		case e := <-events:
			if e.ID != p.container || e.Type != cri.EventStopped {
				continue
			}
			assert.Equal(t, p.config.Pod, e.Pod.PodIdentity)
			require.Len(t, e.Pod.Containers, 1)
			assert.Equal(t, p.sandbox, e.Pod.Containers[0].SandboxID)
			assert.WithinDuration(t, time.Now(), e.Time, waitLimit)
			cancel()
			assert.ErrorIs(t, <-ended, context.Canceled)
			return
		case <-time.After(waitLimit):
			require.Fail(t, "no event reports the exit of the container")
		}
	}
}

func TestIntegrationContainerdStats(t *testing.T) {
	p := startPod(t, dialClient(t, lab.StartPrivate(t).Endpoint(), remote.Options{}), counting)
	require.EventuallyWithT(t, func(t *assert.CollectT) {
		all, err := p.client.ContainerStats(context.Background())
		require.NoError(t, err)
		for _, s := range all {
			if s.ID == p.container {
				require.NotNil(t, s.CPU)
				require.NotNil(t, s.CPU.UsageCoreNanoSeconds)
				require.NotNil(t, s.Memory)
				require.NotNil(t, s.Memory.WorkingSetBytes)
				assert.Positive(t, *s.CPU.UsageCoreNanoSeconds)
				assert.Positive(t, *s.Memory.WorkingSetBytes)
				assert.WithinDuration(t, time.Now(), s.CPU.Time, waitLimit)
				return
			}
		}
		assert.Fail(t, "the container has no stats")
	}, waitLimit, 100*time.Millisecond)
	all, err := p.client.SandboxStats(t.Context())
	require.NoError(t, err)
	for _, s := range all {
		if s.ID == p.sandbox {
			assert.Equal(t, p.config.Pod, s.Pod)
			require.Len(t, s.Containers, 1)
			return
		}
	}
	assert.Fail(t, "the sandbox has no stats")
}

func TestIntegrationContainerdReopensLogs(t *testing.T) {
	p := startPod(t, dialClient(t, lab.Start(t).Endpoint(), remote.Options{}), counting)
	size := func(path string) int64 {
		info, err := os.Stat(path)
		if err != nil {
			return 0
		}
		return info.Size()
	}
	grows := func() bool { return size(p.logPath) > 0 }
	require.Eventually(t, grows, waitLimit, 10*time.Millisecond)
	require.NoError(t, os.Rename(p.logPath, p.logPath+".old"))
	require.NoError(t, p.client.ReopenContainerLog(t.Context(), p.container))
	require.Eventually(t, grows, waitLimit, 10*time.Millisecond)

	require.NoError(t, p.client.StopContainer(t.Context(), p.container, 0))
	assert.Error(t, p.client.ReopenContainerLog(t.Context(), p.container), "reopening fails for an exited container")
}

func TestIntegrationContainerdUpdates(t *testing.T) {
	p := startPod(t, dialClient(t, lab.Start(t).Endpoint(), remote.Options{}), counting)
	require.NoError(t, p.client.UpdateContainer(t.Context(), p.container, &cri.Resources{CPUShares: 512}, nil))
	c, err := p.client.ContainerStatus(t.Context(), p.container)
	require.NoError(t, err)
	require.NotNil(t, c.Resources)
	assert.EqualValues(t, 512, c.Resources.CPUShares)
	assert.EqualValues(t, 64<<20, c.Resources.MemoryLimit, "an update keeps limits that are zero in the request")
	assert.Equal(t, p.config.Pod.UID, c.PodUID)

	err = p.client.UpdateSandbox(t.Context(), p.sandbox, nil, &cri.Resources{CPUShares: 512})
	if !errors.Is(err, errors.ErrUnsupported) {
		assert.NoError(t, err)
	}
}

func TestIntegrationContainerdImages(t *testing.T) {
	l := lab.StartPrivate(t)
	client := dialClient(t, l.Endpoint(), remote.Options{})
	for _, name := range []string{l.RegistryImage(), l.RegistryImageByDigest()} {
		spec := cri.ImageSpec{Image: name}
		_, err := client.ImageStatus(t.Context(), spec)
		require.ErrorIs(t, err, cri.ErrNotFound)

		ref, err := client.PullImage(t.Context(), spec, nil, nil)
		require.NoError(t, err)
		image, err := client.ImageStatus(t.Context(), spec)
		require.NoError(t, err)
		assert.Equal(t, ref, image.ID)
		assert.Positive(t, image.Size)

		all, err := client.ListImages(t.Context())
		require.NoError(t, err)
		var ids []string
		for _, i := range all {
			ids = append(ids, i.ID)
		}
		assert.Contains(t, ids, ref)

		require.NoError(t, client.RemoveImage(t.Context(), spec))
		require.NoError(t, client.RemoveImage(t.Context(), spec), "once more")
	}

	usage, err := client.ImageUsage(t.Context())
	require.NoError(t, err)
	require.NotEmpty(t, usage.Images)
	assert.True(t, filepath.IsAbs(usage.Images[0].Mountpoint))

	_, err = client.PullImage(t.Context(), cri.ImageSpec{Image: l.RegistryHost() + "/missing:1"}, nil, nil)
	assert.ErrorIs(t, err, cri.ErrNotFound)
}

// The connection survives a restart of the runtime: calls fail at once while it is unavailable, and work afterwards.
func TestIntegrationContainerdRestarts(t *testing.T) {
	l := lab.StartPrivate(t)
	client := dialClient(t, l.Endpoint(), remote.Options{})
	p := startPod(t, client, counting)
	require.NoError(t, l.Kill(t.Context()))

	begin := time.Now()
	_, err := client.List(t.Context())
	assert.ErrorIs(t, err, cri.ErrUnavailable)
	_, err = client.List(t.Context())
	assert.ErrorIs(t, err, cri.ErrUnavailable)
	assert.Less(t, time.Since(begin), time.Minute)

	require.NoError(t, l.Restart(t.Context()))
	require.Eventually(t, func() bool {
		s, err := client.List(context.Background())
		return err == nil && len(s.Pod(p.config.Pod.UID).Containers) == 1
	}, waitLimit, 50*time.Millisecond)
}
