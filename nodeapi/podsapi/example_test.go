// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podsapi_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	corev1 "k8s.io/api/core/v1"
	podsv1alpha1 "k8s.io/kubelet/pkg/apis/pods/v1alpha1"

	"github.com/seed81659283/nodeagent/nodeapi/podsapi"
)

func ExampleNew() {
	dir, err := os.MkdirTemp("", "pods")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	l, err := podsapi.Listen(filepath.Join(dir, "pods-api.sock"))
	if err != nil {
		panic(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	server := podsapi.New(podsapi.SourceFunc(func() ([]podsapi.Pod, bool) {
		return []podsapi.Pod{{Pod: pod("u1"), Status: phase(corev1.PodRunning)}}, true
	}), podsapi.Options{})
	wg.Go(func() { _ = server.Run(ctx, l) })

	conn, err := grpc.NewClient("unix://"+l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		panic(err)
	}
	defer conn.Close()
	answer, err := podsv1alpha1.NewPodsClient(conn).GetPod(ctx, &podsv1alpha1.GetPodRequest{PodUID: "u1"})
	if err != nil {
		panic(err)
	}
	var p corev1.Pod
	if err := p.Unmarshal(answer.GetPod()); err != nil {
		panic(err)
	}
	fmt.Println(p.Name, p.Status.Phase)
	// Output: pod-u1 Running
}
