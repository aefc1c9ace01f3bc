// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package lifecycle_test

import (
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seed81659283/nodeagent/cri/critest"
	"github.com/seed81659283/nodeagent/internal/lifecycle/lifecycletest"
	"github.com/seed81659283/nodeagent/internal/lifecycle/podtest"
	"github.com/seed81659283/nodeagent/lifecycle"
	"github.com/seed81659283/nodeagent/lifecycle/podapi"
)

// refuse passes a pod, with defaults, to the agent, and requires that Set refuses it.
func (n *node) refuse(pod *corev1.Pod) error {
	n.t.Helper()
	pod = pod.DeepCopy()
	podapi.Default(pod)
	return n.reconciler.Set(lifecycle.PodSet{Source: "test", Pods: []*corev1.Pod{pod}})
}

func withSysctl(pod *corev1.Pod, name string) *corev1.Pod {
	pod.Spec.SecurityContext = &corev1.PodSecurityContext{Sysctls: []corev1.Sysctl{{Name: name, Value: "1"}}}
	return pod
}

// A pod that Set refuses fails with the kubelet's reason and message, and nothing is created for it.
func TestRefusedPodsFailWithKubeletReason(t *testing.T) {
	const noAppArmor = "Cannot enforce AppArmor: AppArmor is not enabled on the host"
	for name, test := range map[string]struct {
		change          func(*corev1.Pod)
		reason, message string
	}{
		"a sysctl": {
			func(p *corev1.Pod) { withSysctl(p, "kernel/msgmax") },
			"SysctlForbidden", `forbidden sysctl: "kernel.msgmax" not allowlisted`,
		},
		"sysctl of the host network": {
			func(p *corev1.Pod) { withSysctl(p, "net.ipv4.tcp_syncookies").Spec.HostNetwork = true },
			"SysctlForbidden", `forbidden sysctl: "net.ipv4.tcp_syncookies" not allowed with host Net enabled`,
		},
		"another operating system": {
			func(p *corev1.Pod) { p.Spec.OS = &corev1.PodOS{Name: corev1.Windows} },
			"PodOSNotSupported", "Failed to admit pod as the OS field doesn't match node OS",
		},
		"AppArmor, by field of the pod": {
			func(p *corev1.Pod) {
				p.Spec.SecurityContext = &corev1.PodSecurityContext{AppArmorProfile: &corev1.AppArmorProfile{Type: corev1.AppArmorProfileTypeRuntimeDefault}}
			}, "AppArmor", noAppArmor,
		},
		"AppArmor, by field of a container": {
			func(p *corev1.Pod) {
				p.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{AppArmorProfile: &corev1.AppArmorProfile{Type: corev1.AppArmorProfileTypeRuntimeDefault}}
			}, "AppArmor", noAppArmor,
		},
		"AppArmor, by annotation": {
			func(p *corev1.Pod) {
				p.Annotations = map[string]string{corev1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix + "main": "runtime/default"}
			}, "AppArmor", noAppArmor,
		},
		"devices without Options.Devices": {
			func(p *corev1.Pod) {
				devices := corev1.ResourceList{"example.com/gpu": resource.MustParse("1")}
				p.Spec.Containers[0].Resources = corev1.ResourceRequirements{Requests: devices, Limits: devices}
			},
			"PodFeatureUnsupported",
			"Pod requires node features that are not available: spec.containers[0].resources.limits[example.com/gpu]: Forbidden: this agent has no device plugins",
		},
		"value of a newer version": {
			func(p *corev1.Pod) { p.Spec.DNSPolicy = "ByMagic" },
			"UnexpectedAdmissionError", "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rt := critest.New(critest.Options{})
				n := startAgent(t, rt, rt, lifecycle.Options{Dirs: lifecycle.Dirs{Pods: t.TempDir()}, AppArmorError: errors.New("AppArmor is not enabled on the host")})
				pod := podtest.Pod("a")
				pod.Generation = 2
				test.change(pod)
				refused, ok := errors.AsType[*lifecycle.RefusedError](n.refuse(pod))
				require.True(t, ok)
				require.NotNil(t, refused.Rejection)
				assert.Equal(t, test.reason, refused.Rejection.StatusReason())
				time.Sleep(time.Minute)
				st := n.status("a")
				assert.Equal(t, corev1.PodFailed, st.Phase)
				assert.Equal(t, test.reason, st.Reason)
				if test.message != "" {
					assert.Equal(t, "Pod was rejected: "+test.message, st.Message)
				}
				assert.EqualValues(t, 2, st.ObservedGeneration)
				assert.Equal(t, []string{test.reason + "!"}, n.events)
				assert.Empty(t, rt.Calls("RunPodSandbox"))
				active, _ := n.reconciler.Active()
				assert.Empty(t, active)

				n.set() // deletes the pod
				time.Sleep(time.Minute)
				assert.Equal(t, []string{"a"}, n.removedPods())
			})
		})
	}
}

// Each refusal is returned and logged once, until the pod or the cause changes.
func TestEachRefusalIsReportedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		rt := critest.New(critest.Options{})
		n := startAgent(t, rt, rt, lifecycle.Options{Logger: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn}))})
		log.Reset() // discards hints about the options
		pod := withSysctl(podtest.Pod("a"), "kernel.msgmax")
		require.ErrorContains(t, n.refuse(pod), "kernel.msgmax")
		for i := range 577 {
			time.Sleep(time.Second)
			pod.ResourceVersion = string(rune('a' + i%20))
			if i > 300 {
				pod.Status = n.status("a") // as the API server returns it
			}
			require.NoError(t, n.refuse(pod))
		}
		require.Equal(t, corev1.PodFailed, n.phase("a"))
		require.Equal(t, []string{"SysctlForbidden!"}, n.events)
		require.Empty(t, log.String(), "the agent does not log an error that Set returns")

		pod.Status = corev1.PodStatus{}
		require.ErrorContains(t, n.refuse(withSysctl(pod, "kernel.msgmnb")), "kernel.msgmnb")
		require.NoError(t, n.refuse(pod))
		n.set()
		require.ErrorContains(t, n.refuse(pod), "kernel.msgmnb")
	})
}

// A running pod of a previous agent that this agent refuses is left unchanged until it is deleted. Once it has no containers
// it is rejected.
func TestRefusedRunningPodLeftUnchangedUntilDeleted(t *testing.T) {
	for _, dies := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			rt := critest.New(critest.Options{})
			o := lifecycle.Options{Dirs: lifecycle.Dirs{Pods: t.TempDir()}, AllowedUnsafeSysctls: []string{"kernel.msgmax"}}
			n := startAgent(t, rt, rt, o)
			pod := withSysctl(podtest.Pod("a"), "kernel.msgmax")
			n.set(pod)
			time.Sleep(time.Minute)
			require.Equal(t, corev1.PodRunning, n.phase("a"))
			n.stop()

			o.AllowedUnsafeSysctls = nil
			if dies { // the containers exit, as at a reboot
				rt = critest.New(critest.Options{})
			}
			n = startAgent(t, rt, rt, o)
			require.Error(t, n.refuse(pod))
			time.Sleep(10 * time.Minute)
			if dies {
				require.Equal(t, "SysctlForbidden", n.status("a").Reason)
				return
			}
			require.Empty(t, n.events)
			require.Zero(t, ops(rt, "StopContainer"))
			pod.DeletionTimestamp = &metav1.Time{Time: time.Now()}
			require.NoError(t, n.refuse(pod), "a repeated refusal is not returned")
			time.Sleep(10 * time.Minute)
			require.Equal(t, []string{"a"}, n.removedPods())
		})
	}
}

// A restarted agent admits a rejected static pod again, like the kubelet. A rejected pod of an API server stays Failed.
func TestRejectedStaticPodAdmittedAgainAfterAgentRestart(t *testing.T) {
	for source, want := range map[string]corev1.PodPhase{"file": corev1.PodRunning, "api": corev1.PodFailed} {
		synctest.Test(t, func(t *testing.T) {
			rt := critest.New(critest.Options{})
			o := lifecycle.Options{Dirs: lifecycle.Dirs{Pods: t.TempDir()}, Volumes: &lifecycletest.Resources{}, Admit: (&admitRecorder{}).admit}
			n := startAgent(t, rt, rt, o)
			pod := podtest.Pod("a")
			pod.Annotations = map[string]string{"kubernetes.io/config.source": source}
			n.set(pod)
			refused := withSysctl(podtest.Pod("b"), "kernel.msgmax")
			refused.Annotations = pod.Annotations
			podapi.Default(pod)
			podapi.Default(refused)
			both := lifecycle.PodSet{Source: "test", Pods: []*corev1.Pod{pod, refused}}
			require.Error(t, n.reconciler.Set(both))
			time.Sleep(time.Minute)
			require.Equal(t, corev1.PodFailed, n.phase("a"))
			require.Equal(t, corev1.PodFailed, n.phase("b"))
			n.stop()
			o.AllowedUnsafeSysctls, o.Admit = []string{"kernel.*"}, (&admitRecorder{maxPods: 2}).admit
			n = startAgent(t, rt, rt, o)
			require.NoError(t, n.reconciler.Set(both))
			time.Sleep(time.Minute)
			require.Equal(t, want, n.phase("a"), source)
			require.Equal(t, want, n.phase("b"), source)
		})
	}
}
