// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package heartbeat_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/client-go/rest"

	"github.com/seed81659283/nodeagent/nodestatus"
	"github.com/seed81659283/nodeagent/nodestatus/heartbeat"
)

func TestHandleCallsReporterAfterSet(t *testing.T) {
	var h heartbeat.Handle
	h.Initial = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2")}
	h.Changed()
	require.Empty(t, h.Node().Name)
	require.ErrorContains(t, h.Report(t.Context()), "Handle.Set was not called")
	require.ErrorContains(t, h.WaitRegistered(t.Context()), "Handle.Set was not called")
	require.Equal(t, h.Initial, h.Allocatable())

	r, err := heartbeat.NewReporter(&rest.Config{Host: "http://127.0.0.1:1"}, heartbeat.ReporterOptions{Config: nodestatus.Config{Name: "n1"}})
	require.NoError(t, err)
	h.Set(r)
	require.Equal(t, "n1", h.Node().Name)
	require.Equal(t, h.Initial, h.Allocatable(), "Initial is returned before the first status")
	require.Equal(t, h.Initial, h.Node().Status.Allocatable, "static pods are admitted before the first status")
	require.NotContains(t, r.Node().Status.Allocatable, corev1.ResourceCPU, "the Node of the Reporter is not modified")
}
