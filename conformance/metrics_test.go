// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package conformance_test

import (
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	basemetrics "k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/kubernetes/pkg/kubelet/apis/config"
	"k8s.io/kubernetes/pkg/kubelet/certificate"
	"k8s.io/kubernetes/pkg/kubelet/metrics"
	servermetrics "k8s.io/kubernetes/pkg/kubelet/server/metrics"
	volumeutil "k8s.io/kubernetes/pkg/volume/util"

	"github.com/seed81659283/nodeagent/internal/promtest"
)

// codeList has the families of the kubelet's page without series in the kubelet of `make metrics`, where no pod is evicted
// or resized and there is no API server.
const codeList = "../internal/promtest/kubelet/code.txt"

const codeHeader = `# SPDX-FileCopyrightText: The nodeagent Authors
# SPDX-License-Identifier: Apache-2.0
#
# The shape of what the code of kubelet 1.37.1 has for /metrics, and the scraped kubelet had no series of:
# NODEAGENT_UPDATE=1 make -C conformance test ARGS=-run=^TestMetricsOfTheCode$
`

// The families without series in the scrape are read from the kubelet's code. Families in both have equal descriptions.
func TestMetricsOfTheCode(t *testing.T) {
	createAllSeries(t)
	gathered, err := legacyregistry.DefaultGatherer.Gather()
	require.NoError(t, err)
	code := promtest.Shape(gathered)

	page, err := os.ReadFile("../internal/promtest/kubelet/metrics.txt")
	require.NoError(t, err)
	scraped, err := promtest.ParseList(string(page))
	require.NoError(t, err)
	known := map[string]string{}
	for _, family := range scraped {
		known[family.Name] = family.String()
	}
	var unseen strings.Builder
	unseen.WriteString(codeHeader)
	for _, family := range code {
		if line, ok := known[family.Name]; ok {
			assert.Equal(t, line, family.String(), "the scrape and the code must agree")
		} else if isKubeletFamily(family.Name) {
			fmt.Fprintln(&unseen, family)
		}
	}
	if os.Getenv("NODEAGENT_UPDATE") != "" {
		require.NoError(t, os.WriteFile(codeList, []byte(unseen.String()), 0o644))
	}
	listed, err := os.ReadFile(codeList)
	require.NoError(t, err)
	assert.Equal(t, unseen.String(), string(listed))
}

// isKubeletFamily reports whether a family belongs to the kubelet: other packages of this test use the same registry.
func isKubeletFamily(name string) bool {
	if strings.HasPrefix(name, "volume_manager_selinux_") {
		return false // registered by the volume manager, which only other tests create
	}
	for _, prefix := range []string{"kubelet_", "storage_", "volume_", "csi_", "dra_"} {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}

// createAllSeries registers all metrics, and creates a series of each family.
func createAllSeries(t *testing.T) {
	metrics.Register()
	servermetrics.Register()
	volumeutil.RegisterMetrics()
	volumeutil.StorageOperationMetric.WithLabelValues("p", "o", "s", "m")
	volumeutil.RecordOperationLatencyMetric("p", "o", 1)
	volumeutil.RecordCSIOperationLatencyMetrics("d", "m", nil, 1, "false")
	dir := t.TempDir()
	_, err := certificate.NewKubeletServerCertificateManager(nil, &config.KubeletConfiguration{}, "node", func() []v1.NodeAddress { return nil }, dir)
	require.NoError(t, err)
	_, err = certificate.NewKubeletClientCertificateManager(dir, "node", nil, nil, "", "", nil)
	require.NoError(t, err)
	for _, vec := range []any{
		metrics.NodeName, metrics.PodWorkerDuration, metrics.PodStartSLIDuration, metrics.PodStartTotalDuration,
		metrics.CgroupManagerDuration, metrics.RuntimeOperations, metrics.RuntimeOperationsDuration, metrics.RuntimeOperationsErrors,
		metrics.Evictions, metrics.EvictionStatsAge, metrics.Preemptions, metrics.DevicePluginRegistrationCount,
		metrics.DevicePluginAllocationDuration, metrics.PodResourcesEndpointRequestsTotalCount,
		metrics.PodResourcesEndpointRequestsListCount, metrics.PodResourcesEndpointRequestsGetAllocatableCount,
		metrics.PodResourcesEndpointErrorsListCount, metrics.PodResourcesEndpointErrorsGetAllocatableCount,
		metrics.PodResourcesEndpointRequestsGetCount, metrics.PodResourcesEndpointErrorsGetCount, metrics.RunPodSandboxDuration,
		metrics.RunPodSandboxErrors, metrics.RunningContainerCount, metrics.DesiredPodCount, metrics.ActivePodCount,
		metrics.WorkingPodCount, metrics.RestartedPodTotal, metrics.StartedContainersTotal, metrics.TerminatedContainersTotal,
		metrics.StartedContainersErrorsTotal, metrics.CPUManagerAllocationPerNUMA, metrics.ContainerAlignedComputeResources,
		metrics.ContainerAlignedComputeResourcesFailure, metrics.ImageGarbageCollectedTotal, metrics.ImagePullDuration,
		metrics.DRAOperationsDuration, metrics.DRAGRPCOperationsDuration, metrics.DRANodePrepareSkipsTotal,
		metrics.DRANodeUnprepareSkipsTotal, metrics.AdmissionRejectionsTotal, metrics.ContainerRequestedResizes,
		metrics.PodResizeDurationMilliseconds, metrics.PodPendingResizes, metrics.PodInfeasibleResizes,
		metrics.PodDeferredAcceptedResizes, metrics.PodDeferredResizeDurationSeconds, metrics.PodRequestsTotal, metrics.PodRequestsList,
		metrics.PodRequestsGet, metrics.PodRequestsWatch, metrics.PodLevelResourcesAdmissionTotal, metrics.StartedHostProcessContainersTotal,
		metrics.StartedHostProcessContainersErrorsTotal,
		servermetrics.HTTPRequests, servermetrics.HTTPRequestsDuration, servermetrics.HTTPInflightRequests,
		servermetrics.VolumeStatCalDuration, servermetrics.MetricsProvider, servermetrics.WebSocketStreamingRequests,
	} {
		createSeries(t, vec)
	}
}

// createSeries creates a series of a family.
func createSeries(t *testing.T, vec any) {
	t.Helper()
	labels := reflect.ValueOf(vec).Elem().FieldByName("originalLabels")
	require.True(t, labels.IsValid(), "%T", vec)
	values := make([]string, labels.Len())
	for i := range values {
		values[i] = "x"
	}
	switch v := vec.(type) {
	case *basemetrics.CounterVec:
		v.WithLabelValues(values...).Inc()
	case *basemetrics.GaugeVec:
		v.WithLabelValues(values...).Set(1)
	case *basemetrics.HistogramVec:
		v.WithLabelValues(values...).Observe(1)
	default:
		t.Fatalf("%T", vec)
	}
}
