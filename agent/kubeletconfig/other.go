// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package kubeletconfig

import (
	"encoding/json"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
	CrashLoopBackOff                          crashLoopBackOff    `json:"crashLoopBackOff"`
	DefaultPodSysctls                         map[string]string   `json:"defaultPodSysctls"`
	EnableContentionProfiling                 bool                `json:"enableContentionProfiling"`
	EnableControllerAttachDetach              *bool               `json:"enableControllerAttachDetach"`
	EnforceNodeAllocatable                    []string            `json:"enforceNodeAllocatable"`
	HairpinMode                               string              `json:"hairpinMode"`
	ImagePullCredentialsVerificationPolicy    string              `json:"imagePullCredentialsVerificationPolicy"`
	ImageServiceEndpoint                      string              `json:"imageServiceEndpoint"`
	IPTablesDropBit                           *int32              `json:"iptablesDropBit"`
	IPTablesMasqueradeBit                     *int32              `json:"iptablesMasqueradeBit"`
	KernelMemcgNotification                   bool                `json:"kernelMemcgNotification"`
	KubeReservedCgroup                        string              `json:"kubeReservedCgroup"`
	LocalStorageCapacityIsolation             *bool               `json:"localStorageCapacityIsolation"`
	Logging                                   logging             `json:"logging"`
	MemoryReservationPolicy                   string              `json:"memoryReservationPolicy"`
	MemorySwap                                memorySwap          `json:"memorySwap"`
	NodeStatusMaxImages                       *int32              `json:"nodeStatusMaxImages"`
	PreloadedImagesVerificationAllowlist      []string            `json:"preloadedImagesVerificationAllowlist"`
	QOSReserved                               map[string]string   `json:"qosReserved"`
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
	Tracing                                   *tracing            `json:"tracing"`
	UserNamespaces                            *userNamespaces     `json:"userNamespaces"`
	VolumePluginDir                           string              `json:"volumePluginDir"`
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
		InfoBufferSize Amount `json:"infoBufferSize"`
	}
	memorySwap struct {
		SwapBehavior string `json:"swapBehavior"`
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
