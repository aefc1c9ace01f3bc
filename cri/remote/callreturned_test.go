// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package remote_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/cri/remote"
)

// Each call is reported with its CRI name, its error and its duration.
func TestCallReturnedReportsEachCall(t *testing.T) {
	var mu sync.Mutex
	var lines []string
	client := dialStub(t, stubResponses{
		"ListPodSandbox": respondAlways(&v1.ListPodSandboxResponse{}, nil),
		"ListContainers": respondAlways(&v1.ListContainersResponse{}, nil),
		"StartContainer": respondAlways(nil, status.Error(codes.Internal, "out of order")),
	}, remote.Options{CallReturned: func(method string, took time.Duration, err error) {
		mu.Lock()
		defer mu.Unlock()
		assert.Positive(t, took)
		lines = append(lines, fmt.Sprint(method, " ", err == nil))
	}})
	_, err := client.List(t.Context())
	assert.NoError(t, err)
	assert.ErrorContains(t, client.StartContainer(t.Context(), "c"), "out of order")
	assert.Error(t, client.StreamEvents(t.Context(), func(cri.Event) error { return nil }))
	assert.ElementsMatch(t, []string{"ListPodSandbox true", "ListContainers true", "StartContainer false", "GetContainerEvents true"}, lines)
}
