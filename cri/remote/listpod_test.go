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

// listedRuntime is a runtime that returns a given snapshot and implements no other call.
type listedRuntime struct {
	cri.Runtime

	mu   sync.Mutex
	held cri.Snapshot
}

func (l *listedRuntime) List(context.Context) (cri.Snapshot, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.held, nil
}

func (l *listedRuntime) setSnapshot(s cri.Snapshot) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.held = s
}

// podLabels returns the labels of an object of the pod with this UID; none if uid is empty.
func podLabels(uid string) map[string]string {
	if uid == "" {
		return nil
	}
	return map[string]string{cri.LabelPodUID: uid}
}

// someSnapshot returns random sandboxes and containers whose UID label is right, missing or wrong. The sandboxes of one pod
// agree in this.
func someSnapshot(random *rand.Rand, uids []string) (s cri.Snapshot) {
	label := make(map[string]string)
	for _, uid := range uids {
		label[uid] = []string{uid, uid, "", uids[random.IntN(len(uids))]}[random.IntN(4)]
	}
	for i := range random.IntN(6) {
		uid := uids[random.IntN(len(uids))]
		s.Sandboxes = append(s.Sandboxes, cri.Sandbox{
			ID: fmt.Sprint("s", i), Pod: cri.PodIdentity{UID: uid, Name: "pod-" + uid, Namespace: "test"},
			Attempt: uint32(i), Labels: podLabels(label[uid]), CreatedAt: time.Unix(int64(i), 0),
		})
	}
	for i := range random.IntN(10) {
		sandbox := "gone"
		if n := random.IntN(len(s.Sandboxes) + 1); n < len(s.Sandboxes) {
			sandbox = s.Sandboxes[n].ID
		}
		s.Containers = append(s.Containers, cri.Container{
			ID: fmt.Sprint("c", i), SandboxID: sandbox, Name: fmt.Sprint("n", i), CreatedAt: time.Unix(int64(i), 0),
			Labels: podLabels(append(uids, "", "")[random.IntN(len(uids)+2)]),
		})
	}
	return s
}

// ListPod returns the same objects as a full list, including pods without labels that crictl created: otherwise the agent
// would assume that they were removed.
func TestListPodAgreesWithList(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "cri.sock")
	l, err := net.Listen("unix", socket)
	require.NoError(t, err)
	rt := &listedRuntime{}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var wg sync.WaitGroup
	wg.Go(func() { assert.NoError(t, criserver.New(rt, criserver.Options{}).Serve(ctx, l)) })
	t.Cleanup(func() { cancel(); wg.Wait() })
	client := dialClient(t, socket, remote.Options{})

	uids := []string{"u0", "u1", "u2", "u3"}
	for seed := range uint64(500) {
		rt.setSnapshot(someSnapshot(rand.New(rand.NewPCG(seed, 0)), uids))
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

// A pod with the UID label, as all pods of an agent, is listed without a full list, because each start lists its pod about
// ten times. If a full list is too large, other pods are listed by the label too.
func TestListPodOfLabelledPodNeedsNoFullList(t *testing.T) {
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
	selector := podLabels("u1")
	client := dialStub(t, stubResponses{
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
	assert.Len(t, pod.Sandboxes, 1, "the sandbox that crictl created is listed")
	large = true
	pod, err = client.ListPod(t.Context(), "u2")
	require.NoError(t, err)
	assert.Empty(t, pod.Sandboxes)
}
