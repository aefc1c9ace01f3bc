// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package remote_test

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/cri/criserver"
	"github.com/seed81659283/nodeagent/cri/remote"
)

// listed is a runtime that holds what it is told, and can do nothing.
type listed struct {
	cri.Runtime

	mu   sync.Mutex
	held cri.Snapshot
}

func (l *listed) List(context.Context) (cri.Snapshot, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.held, nil
}

func (l *listed) hold(s cri.Snapshot) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.held = s
}

// labelled returns the labels of an object that says whose it is; empty: it does not.
func labelled(uid string) map[string]string {
	if uid == "" {
		return nil
	}
	return map[string]string{cri.LabelPodUID: uid}
}

// someSnapshot makes sandboxes and containers whose labels say whose they are, nothing, or something wrong. The sandboxes
// of one pod are alike in that.
func someSnapshot(random *rand.Rand, uids []string) (s cri.Snapshot) {
	label := make(map[string]string)
	for _, uid := range uids {
		label[uid] = []string{uid, uid, "", uids[random.IntN(len(uids))]}[random.IntN(4)]
	}
	for i := range random.IntN(6) {
		uid := uids[random.IntN(len(uids))]
		s.Sandboxes = append(s.Sandboxes, cri.Sandbox{
			ID: fmt.Sprint("s", i), Pod: cri.PodIdentity{UID: uid, Name: "pod-" + uid, Namespace: "test"},
			Attempt: uint32(i), Labels: labelled(label[uid]), CreatedAt: time.Unix(int64(i), 0),
		})
	}
	for i := range random.IntN(10) {
		sandbox := "gone"
		if n := random.IntN(len(s.Sandboxes) + 1); n < len(s.Sandboxes) {
			sandbox = s.Sandboxes[n].ID
		}
		s.Containers = append(s.Containers, cri.Container{
			ID: fmt.Sprint("c", i), SandboxID: sandbox, Name: fmt.Sprint("n", i), CreatedAt: time.Unix(int64(i), 0),
			Labels: labelled(append(uids, "", "")[random.IntN(len(uids)+2)]),
		})
	}
	return s
}

// Whoever looks at one pod must see what a list of everything shows of it, also of pods that crictl has made, which carry
// no label: else the agent takes what runs there for gone.
func TestListPodAgreesWithList(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "cri.sock")
	l, err := net.Listen("unix", socket)
	require.NoError(t, err)
	rt := &listed{}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var wg sync.WaitGroup
	wg.Go(func() { assert.NoError(t, criserver.New(rt, criserver.Options{}).Serve(ctx, l)) })
	t.Cleanup(func() { cancel(); wg.Wait() })
	client := dial(t, socket, remote.Options{})

	uids := []string{"u0", "u1", "u2", "u3"}
	for seed := range uint64(500) {
		rt.hold(someSnapshot(rand.New(rand.NewPCG(seed, 0)), uids))
		all, err := client.List(t.Context())
		require.NoError(t, err)
		for _, uid := range append(uids, "unknown") {
			want := all.Pod(uid)
			got, err := client.ListPod(t.Context(), uid)
			require.NoError(t, err)
			want.Time = got.Time
			slices.SortFunc(got.Sandboxes, func(a, b cri.Sandbox) int { return cmp.Compare(a.ID, b.ID) })
			slices.SortFunc(got.Containers, func(a, b cri.Container) int { return cmp.Compare(a.ID, b.ID) })
			require.Equal(t, want, got, "pod %s with seed %d", uid, seed)
		}
	}
}

// A pod that carries the label, as all pods of an agent do, is listed without a list of everything: a start looks at its pod
// some ten times. Where everything is too much for a message, the label decides for other pods, too.
func TestListPodAsksForOnePod(t *testing.T) {
	var (
		mu    sync.Mutex
		calls []string
		large bool
	)
	said := func(text string) {
		mu.Lock()
		defer mu.Unlock()
		calls = append(calls, text)
	}
	selector := labelled("u1")
	client := dialStub(t, answers{
		"ListPodSandbox": func(_ context.Context, q any) (any, error) {
			f := q.(*v1.ListPodSandboxRequest).GetFilter()
			said(fmt.Sprintf("sandboxes %v", f.GetLabelSelector()))
			switch {
			case f != nil:
				return &v1.ListPodSandboxResponse{Items: []*v1.PodSandbox{
					{Id: "s1", Metadata: &v1.PodSandboxMetadata{Uid: "u1"}, Labels: selector},
				}}, nil
			case large:
				return nil, status.Error(codes.ResourceExhausted, "larger than max")
			}
			return &v1.ListPodSandboxResponse{Items: []*v1.PodSandbox{
				{Id: "s1", Metadata: &v1.PodSandboxMetadata{Uid: "u1"}, Labels: selector},
				{Id: "s2", Metadata: &v1.PodSandboxMetadata{Uid: "u2"}},
			}}, nil
		},
		"ListContainers": func(_ context.Context, q any) (any, error) {
			f := q.(*v1.ListContainersRequest).GetFilter()
			said(fmt.Sprintf("containers %v", f.GetLabelSelector()))
			return &v1.ListContainersResponse{Containers: []*v1.Container{
				{Id: "c1", PodSandboxId: "s1", Metadata: &v1.ContainerMetadata{Name: "c"}, Labels: selector},
			}}, nil
		},
	}, remote.Options{})
	_, err := client.List(t.Context())
	require.NoError(t, err)
	calls = nil
	pod, err := client.ListPod(t.Context(), "u1")
	require.NoError(t, err)
	assert.Len(t, pod.Sandboxes, 1)
	assert.Len(t, pod.Containers, 1)
	byLabel := []string{`sandboxes map[io.kubernetes.pod.uid:u1]`, `containers map[io.kubernetes.pod.uid:u1]`}
	assert.ElementsMatch(t, byLabel, calls)

	pod, err = client.ListPod(t.Context(), "u2")
	require.NoError(t, err)
	assert.Len(t, pod.Sandboxes, 1, "crictl has made it")
	large = true
	pod, err = client.ListPod(t.Context(), "u2")
	require.NoError(t, err)
	assert.Empty(t, pod.Sandboxes)
}
