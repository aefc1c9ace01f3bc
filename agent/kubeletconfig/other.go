// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package kubeletconfig

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seed81659283/nodeagent/internal/quantity"
)

// otherFields has the fields of a KubeletConfiguration v1beta1 that Configuration does not have. Parse decodes these fields only to check their
// values. fieldTable has the state of each field.
type otherFields struct {
	ConfigMapAndSecretChangeDetectionStrategy string              `json:"configMapAndSecretChangeDetectionStrategy"`
	ContainerLogMaxWorkers                    *int32              `json:"containerLogMaxWorkers"`
	ContainerLogMonitorInterval               *metav1.Duration    `json:"containerLogMonitorInterval"`
	ContentType                               string              `json:"contentType"`
	CPUCFSQuota                               *bool               `json:"cpuCFSQuota"`
	CPUCFSQuotaPeriod                         *metav1.Duration    `json:"cpuCFSQuotaPeriod"`
	CPUManagerPolicy                          string              `json:"cpuManagerPolicy"`
	CPUManagerPolicyOptions                   map[string]string   `json:"cpuManagerPolicyOptions"`
	CPUManagerReconcilePeriod                 metav1.Duration     `json:"cpuManagerReconcilePeriod"`
	CrashLoopBackOff                          crashLoopBackOff    `json:"crashLoopBackOff"`
	DefaultPodSysctls                         map[string]string   `json:"defaultPodSysctls"`
	EnableContentionProfiling                 bool                `json:"enableContentionProfiling"`
	EnableControllerAttachDetach              *bool               `json:"enableControllerAttachDetach"`
	EnforceNodeAllocatable                    []string            `json:"enforceNodeAllocatable"`
	FailCgroupV1                              *bool               `json:"failCgroupV1"`
	FailSwapOn                                *bool               `json:"failSwapOn"`
	HairpinMode                               string              `json:"hairpinMode"`
	ImagePullCredentialsVerificationPolicy    string              `json:"imagePullCredentialsVerificationPolicy"`
	ImageServiceEndpoint                      string              `json:"imageServiceEndpoint"`
	IPTablesDropBit                           *int32              `json:"iptablesDropBit"`
	IPTablesMasqueradeBit                     *int32              `json:"iptablesMasqueradeBit"`
	KernelMemcgNotification                   bool                `json:"kernelMemcgNotification"`
	KubeReservedCgroup                        string              `json:"kubeReservedCgroup"`
	KubeletCgroups                            string              `json:"kubeletCgroups"`
	LocalStorageCapacityIsolation             *bool               `json:"localStorageCapacityIsolation"`
	Logging                                   logging             `json:"logging"`
	MakeIPTablesUtilChains                    *bool               `json:"makeIPTablesUtilChains"`
	MaxOpenFiles                              int64               `json:"maxOpenFiles"`
	MemoryManagerPolicy                       string              `json:"memoryManagerPolicy"`
	MemoryReservationPolicy                   string              `json:"memoryReservationPolicy"`
	MemorySwap                                memorySwap          `json:"memorySwap"`
	MemoryThrottlingFactor                    *float64            `json:"memoryThrottlingFactor"`
	NodeStatusMaxImages                       *int32              `json:"nodeStatusMaxImages"`
	OOMScoreAdj                               *int32              `json:"oomScoreAdj"`
	PodCIDR                                   string              `json:"podCIDR"`
	PodPidsLimit                              *int64              `json:"podPidsLimit"`
	PreloadedImagesVerificationAllowlist      []string            `json:"preloadedImagesVerificationAllowlist"`
	ProtectKernelDefaults                     bool                `json:"protectKernelDefaults"`
	QOSReserved                               map[string]string   `json:"qosReserved"`
	ReservedMemory                            []memoryReservation `json:"reservedMemory"`
	ReservedSystemCPUs                        string              `json:"reservedSystemCPUs"`
	RunOnce                                   bool                `json:"runOnce"`
	RuntimeRequestTimeout                     metav1.Duration     `json:"runtimeRequestTimeout"`
	SeccompDefault                            *bool               `json:"seccompDefault"`
	ShowHiddenMetricsForVersion               string              `json:"showHiddenMetricsForVersion"`
	SingleProcessOOMKill                      *bool               `json:"singleProcessOOMKill"`
	StaticPodURLHeader                        map[string][]string `json:"staticPodURLHeader"`
	SyncFrequency                             metav1.Duration     `json:"syncFrequency"`
	SystemCgroups                             string              `json:"systemCgroups"`
	SystemReservedCgroup                      string              `json:"systemReservedCgroup"`
	TLSCipherSuites                           []string            `json:"tlsCipherSuites"`
	TLSCurvePreferences                       []int32             `json:"tlsCurvePreferences"`
	TLSMinVersion                             string              `json:"tlsMinVersion"`
	TopologyManagerPolicyOptions              map[string]string   `json:"topologyManagerPolicyOptions"`
	Tracing                                   *tracing            `json:"tracing"`
	UserNamespaces                            *userNamespaces     `json:"userNamespaces"`
	VolumePluginDir                           string              `json:"volumePluginDir"`
	VolumeStatsAggPeriod                      metav1.Duration     `json:"volumeStatsAggPeriod"`
}

type (
	crashLoopBackOff struct {
		MaxContainerRestartPeriod *metav1.Duration `json:"maxContainerRestartPeriod"`
	}
	logging struct {
		Format         string      `json:"format"`
		FlushFrequency flushPeriod `json:"flushFrequency"`
		Verbosity      uint32      `json:"verbosity"`
		VModule        []vmodule   `json:"vmodule"`
		Options        struct {
			Text outputRouting `json:"text"`
			JSON outputRouting `json:"json"`
		} `json:"options"`
	}
	vmodule struct {
		FilePattern string `json:"filePattern"`
		Verbosity   uint32 `json:"verbosity"`
	}
	outputRouting struct {
		SplitStream    bool   `json:"splitStream"`
		InfoBufferSize amount `json:"infoBufferSize"`
	}
	memorySwap struct {
		SwapBehavior string `json:"swapBehavior"`
	}
	memoryReservation struct {
		NUMANode int32             `json:"numaNode"`
		Limits   map[string]amount `json:"limits"`
	}
	tracing struct {
		Endpoint               *string `json:"endpoint"`
		SamplingRatePerMillion *int32  `json:"samplingRatePerMillion"`
	}
	userNamespaces struct {
		IDsPerPod *int64 `json:"idsPerPod"`
	}
)

// flushPeriod is a duration, as a string or as a number of nanoseconds.
type flushPeriod struct{ time.Duration }

// UnmarshalJSON decodes a string such as "5s", or a number of nanoseconds.
func (p *flushPeriod) UnmarshalJSON(text []byte) error {
	if strings.HasPrefix(string(text), `"`) {
		var d metav1.Duration
		err := json.Unmarshal(text, &d)
		p.Duration = d.Duration
		return err
	}
	return json.Unmarshal(text, &p.Duration)
}

// amount is a resource quantity from untrusted JSON. Text with a huge exponent, which takes minutes to decode, is an error.
type amount struct{ resource.Quantity }

// UnmarshalJSON decodes a string or a number. It refuses a number with a huge exponent.
func (a *amount) UnmarshalJSON(text []byte) (err error) {
	number := strings.TrimSpace(string(text))
	if number == "null" {
		return nil
	}
	if strings.HasPrefix(number, `"`) {
		if err := json.Unmarshal(text, &number); err != nil {
			return err
		}
	}
	if a.Quantity, err = quantity.Parse(number); err != nil {
		return fmt.Errorf("%q: %w", number, err)
	}
	return nil
}
