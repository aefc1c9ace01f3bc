// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package remote_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
	v1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/seed81659283/nodeagent/cri/remote"
)

// BenchmarkList lists 100 pods of one container each, with the labels and annotations of the kubelet. The server runs in this
// process but sends pre-encoded responses, so that the client is measured.
func BenchmarkList(b *testing.B) {
	sandboxes, containers := &v1.ListPodSandboxResponse{}, &v1.ListContainersResponse{}
	for i := range 100 {
		s, c := busyPod(i)
		sandboxes.Items = append(sandboxes.Items, s)
		containers.Containers = append(containers.Containers, c)
	}
	client := dialEncoded(b, sandboxes, containers)
	b.ReportAllocs()
	for b.Loop() {
		s, err := client.List(b.Context())
		if err != nil || len(s.Sandboxes) != 100 || len(s.Containers) != 100 {
			b.Fatal(err, len(s.Sandboxes), len(s.Containers))
		}
	}
	b.ReportMetric(float64(proto.Size(sandboxes)+proto.Size(containers)), "wire-B/op")
}

func busyPod(i int) (*v1.PodSandbox, *v1.Container) {
	uid := fmt.Sprintf("8c8fd2bd-0d1a-4c55-9d52-%012d", i)
	labels := map[string]string{
		"app":                         "web",
		"io.kubernetes.pod.name":      fmt.Sprintf("web-%d", i),
		"io.kubernetes.pod.namespace": "default",
		"io.kubernetes.pod.uid":       uid,
	}
	sandbox := &v1.PodSandbox{
		Id:        strings.Repeat(fmt.Sprintf("%04x", i), 16),
		Metadata:  &v1.PodSandboxMetadata{Name: labels["io.kubernetes.pod.name"], Uid: uid, Namespace: "default"},
		CreatedAt: 1_700_000_000_000_000_000,
		Labels:    labels,
		Annotations: map[string]string{
			"kubernetes.io/config.hash":   uid,
			"kubernetes.io/config.seen":   "2026-01-01T00:00:00.000000000Z",
			"kubernetes.io/config.source": "file",
		},
	}
	return sandbox, &v1.Container{
		Id:           strings.Repeat(fmt.Sprintf("%04x", i+1000), 16),
		PodSandboxId: sandbox.GetId(),
		Metadata:     &v1.ContainerMetadata{Name: "main"},
		Image:        &v1.ImageSpec{Image: "sha256:" + strings.Repeat("ab", 32), UserSpecifiedImage: "nginx:1"},
		ImageRef:     "sha256:" + strings.Repeat("ab", 32),
		ImageId:      "sha256:" + strings.Repeat("ab", 32),
		State:        v1.ContainerState_CONTAINER_RUNNING,
		CreatedAt:    1_700_000_000_000_000_000,
		Labels: map[string]string{
			"io.kubernetes.container.name": "main",
			"io.kubernetes.pod.name":       labels["io.kubernetes.pod.name"],
			"io.kubernetes.pod.namespace":  "default",
			"io.kubernetes.pod.uid":        uid,
		},
		Annotations: map[string]string{
			"io.kubernetes.container.hash":                     "8e45cbd0",
			"io.kubernetes.container.restartCount":             "0",
			"io.kubernetes.container.terminationMessagePath":   "/dev/termination-log",
			"io.kubernetes.container.terminationMessagePolicy": "File",
			"io.kubernetes.pod.terminationGracePeriod":         "30",
		},
	}
}

// encodedCodec responds with bytes instead of messages.
type encodedCodec struct{ encoding.CodecV2 }

func (encodedCodec) Name() string { return "proto" }

func (encodedCodec) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(v.([]byte))}, nil
}

func (encodedCodec) Unmarshal(mem.BufferSlice, any) error { return nil }

func dialEncoded(b *testing.B, sandboxes, containers proto.Message) *remote.Client {
	b.Helper()
	answers := map[string][]byte{}
	for call, m := range map[string]proto.Message{"ListPodSandbox": sandboxes, "ListContainers": containers} {
		raw, err := proto.Marshal(m)
		require.NoError(b, err)
		answers["/runtime.v1.RuntimeService/"+call] = raw
	}
	socket := filepath.Join(b.TempDir(), "cri.sock")
	l, err := net.Listen("unix", socket)
	require.NoError(b, err)
	g := grpc.NewServer(grpc.ForceServerCodecV2(encodedCodec{}), grpc.UnaryInterceptor(
		func(_ context.Context, _ any, call *grpc.UnaryServerInfo, _ grpc.UnaryHandler) (any, error) {
			return answers[call.FullMethod], nil
		}))
	v1.RegisterRuntimeServiceServer(g, v1.UnimplementedRuntimeServiceServer{})
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := g.Serve(l); !errors.Is(err, grpc.ErrServerStopped) { // returned if the server was stopped before Serve
			assert.NoError(b, err)
		}
	})
	b.Cleanup(func() {
		g.Stop()
		wg.Wait()
	})
	return dialClient(b, socket, remote.Options{})
}
