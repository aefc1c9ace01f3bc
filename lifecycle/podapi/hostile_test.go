// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podapi_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/seed81659283/nodeagent/internal/costtest"
	"github.com/seed81659283/nodeagent/internal/podtest"
	"github.com/seed81659283/nodeagent/lifecycle/podapi"
)

// hostilePods returns pods whose validation was once quadratic, or whose errors were much larger than the pod. n is the
// number of repeated elements. With n up to 1,000, no list has more than 1,000 elements.
func hostilePods() map[string]func(n int) *corev1.Pod {
	return map[string]func(n int) *corev1.Pod{
		"targets of ephemeral containers": func(n int) *corev1.Pod {
			return podWith(n, func(p *corev1.Pod, i int) {
				p.Spec.InitContainers = append(p.Spec.InitContainers, named("i", i))
				e := corev1.EphemeralContainer{TargetContainerName: fmt.Sprintf("i%d", n-1)}
				e.Name, e.Image = fmt.Sprintf("e%d", i), "a"
				p.Spec.EphemeralContainers = append(p.Spec.EphemeralContainers, e)
			})
		},
		"mounts of volumes": func(n int) *corev1.Pod {
			p := podWith(n, func(p *corev1.Pod, i int) {
				p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: fmt.Sprintf("v%d", i)})
			})
			for i := range 40 {
				c := named("m", i)
				for j := range n {
					c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: fmt.Sprintf("v%d", n-1), MountPath: fmt.Sprint(j)})
				}
				p.Spec.Containers = append(p.Spec.Containers, c)
			}
			return p
		},
		"mount options": func(n int) *corev1.Pod {
			return podWith(n/8, func(p *corev1.Pod, i int) {
				m := corev1.VolumeMount{Name: "v", MountPath: fmt.Sprint(i)}
				for j := range n {
					m.BindMountOptions = append(m.BindMountOptions, fmt.Sprint(j))
				}
				p.Spec.Volumes = []corev1.Volume{{Name: "v"}}
				p.Spec.Containers[0].VolumeMounts = append(p.Spec.Containers[0].VolumeMounts, m)
			})
		},
		"host aliases": func(n int) *corev1.Pod {
			return podWith(n/8, func(p *corev1.Pod, _ int) {
				p.Spec.HostAliases = append(p.Spec.HostAliases, corev1.HostAlias{IP: "1.1.1.1", Hostnames: make([]string, n)})
			})
		},
		"AppArmor annotations": func(n int) *corev1.Pod {
			return podWith(n, func(p *corev1.Pod, i int) {
				p.Spec.InitContainers = append(p.Spec.InitContainers, named("i", i))
				p.Annotations[corev1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix+fmt.Sprintf("i%d", i)] = "unconfined"
			})
		},
		"resources": func(n int) *corev1.Pod {
			return podWith(n, func(p *corev1.Pod, i int) {
				c := named("r", i)
				c.Resources.Requests = corev1.ResourceList{corev1.ResourceName(fmt.Sprintf("hugepages-%d", i)): quantity("1")}
				p.Spec.Containers = append(p.Spec.Containers, c)
				p.Spec.Resources = &corev1.ResourceRequirements{}
			})
		},
		"empty containers": func(n int) *corev1.Pod {
			return podWith(n, func(p *corev1.Pod, _ int) {
				p.Spec.Containers = append(p.Spec.Containers, corev1.Container{})
				p.Spec.InitContainers = append(p.Spec.InitContainers, corev1.Container{})
			})
		},
		"empty entries": func(n int) *corev1.Pod {
			return podWith(n/32, func(p *corev1.Pod, _ int) {
				c := corev1.Container{
					Env: make([]corev1.EnvVar, n), EnvFrom: make([]corev1.EnvFromSource, n), Ports: make([]corev1.ContainerPort, n),
					VolumeMounts: make([]corev1.VolumeMount, n), VolumeDevices: make([]corev1.VolumeDevice, n),
				}
				p.Spec.Containers = append(p.Spec.Containers, c)
			})
		},
		"long names": func(n int) *corev1.Pod {
			return podWith(n, func(p *corev1.Pod, i int) {
				c := named(strings.Repeat("X", 1000), i)
				c.Image, c.ImagePullPolicy = " "+c.Name, corev1.PullPolicy(c.Name)
				p.Spec.Containers = append(p.Spec.Containers, c)
				p.Annotations[c.Name+"="] = ""
			})
		},
	}
}

func quantity(s string) resource.Quantity { return resource.MustParse(s) }

func named(prefix string, i int) corev1.Container {
	return corev1.Container{Name: fmt.Sprintf("%s%d", prefix, i), Image: "a"}
}

// podWith returns a pod with defaults and n elements added by add.
func podWith(n int, add func(p *corev1.Pod, i int)) *corev1.Pod {
	p := &corev1.Pod{}
	p.Name, p.Namespace, p.UID, p.Annotations = "web", "default", "u1", map[string]string{}
	p.Spec.Containers = []corev1.Container{{Name: "c", Image: "a"}}
	for i := range n {
		add(p, i)
	}
	podapi.Default(p)
	return p
}

// A pod of a megabyte is validated in less than a second and with 64 MiB. In a previous version, 166 KB of containers and
// mounts took a second and 10 MiB an hour, which blocked all other pods.
func TestValidationIsCheap(t *testing.T) {
	for name, make := range hostilePods() {
		t.Run(name, func(t *testing.T) {
			p := make(900)
			size, err := json.Marshal(p)
			require.NoError(t, err)
			t.Logf("%d bytes", len(size))
			costtest.Check(t, costtest.Limit{}, func() {
				errs := podapi.Validate(p)
				text := fmt.Sprint(errs.ToAggregate())
				assert.Less(t, len(text), 200<<10)
				podapi.Unsupported(p)
			})
		})
	}
}

// Twice as many elements allocate at most twice as much, so that the limit holds for larger pods.
func TestValidationIsLinear(t *testing.T) {
	for name, make := range hostilePods() {
		small, large := make(400), make(800)
		work := func(p *corev1.Pod) float64 {
			return testing.AllocsPerRun(1, func() { podapi.Validate(p); podapi.Unsupported(p) })
		}
		assert.Less(t, work(large), 2.2*work(small)+1000, name)
	}
}

// A list of more than 1,000 entries is rejected before its entries are validated.
func TestListsLimitedTo1000Entries(t *testing.T) {
	many := func(n int) map[string]func(*corev1.Pod) {
		headers := &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{HTTPHeaders: make([]corev1.HTTPHeader, n)}}}
		keys, quantities := map[string]string{}, corev1.ResourceList{}
		for i := range n {
			keys[fmt.Sprint("a", i)], quantities[corev1.ResourceName(fmt.Sprint("a/b", i))] = "", quantity("1")
		}
		const c = "spec.containers[1]."
		return map[string]func(*corev1.Pod){
			"spec.containers":          func(p *corev1.Pod) { p.Spec.Containers = make([]corev1.Container, n) },
			"spec.initContainers":      func(p *corev1.Pod) { p.Spec.InitContainers = make([]corev1.Container, n) },
			"spec.ephemeralContainers": func(p *corev1.Pod) { p.Spec.EphemeralContainers = make([]corev1.EphemeralContainer, n) },
			"spec.volumes":             func(p *corev1.Pod) { p.Spec.Volumes = make([]corev1.Volume, n) },
			"spec.volumes[0].projected.sources": func(p *corev1.Pod) {
				p.Spec.Volumes = []corev1.Volume{{Name: "v"}}
				p.Spec.Volumes[0].Projected = &corev1.ProjectedVolumeSource{Sources: make([]corev1.VolumeProjection, n)}
			},
			"spec.hostAliases":              func(p *corev1.Pod) { p.Spec.HostAliases = make([]corev1.HostAlias, n) },
			"spec.hostAliases[0].hostnames": func(p *corev1.Pod) { p.Spec.HostAliases = []corev1.HostAlias{{Hostnames: make([]string, n)}} },
			"spec.readinessGates":           func(p *corev1.Pod) { p.Spec.ReadinessGates = make([]corev1.PodReadinessGate, n) },
			"spec.tolerations":              func(p *corev1.Pod) { p.Spec.Tolerations = make([]corev1.Toleration, n) },
			"spec.securityContext.sysctls":  func(p *corev1.Pod) { p.Spec.SecurityContext.Sysctls = make([]corev1.Sysctl, n) },
			"spec.dnsConfig.options": func(p *corev1.Pod) {
				p.Spec.DNSConfig = &corev1.PodDNSConfig{Options: make([]corev1.PodDNSConfigOption, n)}
			},
			"spec.nodeSelector":                      func(p *corev1.Pod) { p.Spec.NodeSelector = keys },
			"metadata.annotations":                   func(p *corev1.Pod) { p.Annotations = keys },
			"metadata.labels":                        func(p *corev1.Pod) { p.Labels = keys },
			"metadata.finalizers":                    func(p *corev1.Pod) { p.Finalizers = make([]string, n) },
			c + "env":                                func(p *corev1.Pod) { p.Spec.Containers[1].Env = make([]corev1.EnvVar, n) },
			c + "envFrom":                            func(p *corev1.Pod) { p.Spec.Containers[1].EnvFrom = make([]corev1.EnvFromSource, n) },
			c + "ports":                              func(p *corev1.Pod) { p.Spec.Containers[1].Ports = make([]corev1.ContainerPort, n) },
			c + "args":                               func(p *corev1.Pod) { p.Spec.Containers[1].Args = make([]string, n) },
			c + "command":                            func(p *corev1.Pod) { p.Spec.Containers[1].Command = make([]string, n) },
			c + "volumeMounts":                       func(p *corev1.Pod) { p.Spec.Containers[1].VolumeMounts = make([]corev1.VolumeMount, n) },
			c + "volumeDevices":                      func(p *corev1.Pod) { p.Spec.Containers[1].VolumeDevices = make([]corev1.VolumeDevice, n) },
			c + "resources.limits":                   func(p *corev1.Pod) { p.Spec.Containers[1].Resources.Limits = quantities },
			c + "readinessProbe.httpGet.httpHeaders": func(p *corev1.Pod) { p.Spec.Containers[1].ReadinessProbe = headers },
			c + "volumeMounts[0].bindMountOptions": func(p *corev1.Pod) {
				p.Spec.Containers[1].VolumeMounts = []corev1.VolumeMount{{BindMountOptions: make([]string, n)}}
			},
		}
	}
	validate := func(change func(*corev1.Pod)) field.ErrorList {
		p := podtest.Pod(t)
		p.Spec.Containers = append(p.Spec.Containers, corev1.Container{})
		change(p)
		return podapi.Validate(p)
	}
	for path, change := range many(podapi.MaxEntries + 1) {
		errs := validate(change)
		if assert.Len(t, errs, 1, path) {
			assert.Equal(t, path+": Too many: 1001: must have at most 1000 items", errs[0].Error())
		}
	}
	for path, change := range many(podapi.MaxEntries) {
		for _, err := range validate(change) {
			assert.NotEqual(t, path+": Too many: 1000: must have at most 1000 items", err.Error())
		}
	}
}

// The name of a huge page resource contains the page size. A large exponent in it took minutes to parse.
func TestHugePagesExponentLimited(t *testing.T) {
	for size, want := range map[string]bool{
		"2e6": true, "1Ki": true, "20e-1": true, "1E2": true,
		"1e-30000000": false, "1e30000000": false, "1E-300": false, strings.Repeat("9", 1000): false, "0.1": false,
	} {
		p := podtest.Pod(t)
		list := corev1.ResourceList{"cpu": quantity("1"), corev1.ResourceName("hugepages-" + size): quantity("4e18")}
		p.Spec.Containers[0].Resources = corev1.ResourceRequirements{Limits: list, Requests: list}
		costtest.Check(t, costtest.Limit{}, func() {
			rejected := strings.Contains(fmt.Sprint(podapi.Validate(p).ToAggregate()), "must be a multiple of the page size")
			assert.Equal(t, !want, rejected, size[:min(len(size), 20)])
		})
	}
}

// Each resource name is summed over all containers, so their number is limited.
func TestTooManyResourceNamesRejected(t *testing.T) {
	p := podWith(100, func(p *corev1.Pod, i int) {
		c := named("r", i)
		c.Resources.Limits = corev1.ResourceList{corev1.ResourceName(fmt.Sprintf("example.com/r%d", i)): quantity("1")}
		p.Spec.Containers = append(p.Spec.Containers, c)
	})
	assert.Empty(t, podapi.Validate(p))
	p.Spec.Containers[100].Resources.Limits["cpu"] = quantity("1")
	assert.EqualError(t, podapi.Validate(p).ToAggregate(),
		"spec.containers[100].resources.limits: Too many: 101: a pod may request at most 100 different resources")
}

// A key of a megabyte is rejected before it is matched against a pattern.
func TestLongKeysRejected(t *testing.T) {
	p, huge := podtest.Pod(t), strings.Repeat("9", 1<<20)
	p.Spec.Containers[0].Resources.Limits = corev1.ResourceList{corev1.ResourceName(huge): quantity("1")}
	p.Labels, p.Annotations = map[string]string{huge: ""}, map[string]string{huge: ""}
	costtest.Check(t, costtest.Limit{Bytes: 1 << 20}, func() {
		assert.EqualError(t, podapi.Validate(p).ToAggregate(), "[metadata.labels: Too long: a key may not be more than 1024 bytes, "+
			"metadata.annotations: Too long: a key may not be more than 1024 bytes, "+
			"spec.containers[0].resources.limits: Too long: a key may not be more than 1024 bytes]")
	})
}

// Errors do not quote large values, and their number is limited.
func TestErrorsQuoteLimitedText(t *testing.T) {
	huge := strings.Repeat("X", 1<<20)
	p := podtest.Pod(t)
	key := huge[:900]
	p.Name, p.UID, p.Labels = huge, types.UID(huge), map[string]string{key: huge}
	p.Annotations = map[string]string{corev1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix + key: huge}
	p.Spec.Hostname, p.Spec.NodeName, p.Spec.RestartPolicy = huge, huge, corev1.RestartPolicy(huge)
	p.Spec.DNSConfig = &corev1.PodDNSConfig{Searches: []string{huge}, Nameservers: []string{huge}}
	c := &p.Spec.Containers[0]
	c.Name, c.Image = huge, huge+" "
	c.VolumeMounts = []corev1.VolumeMount{{Name: huge, MountPath: huge, SubPathExpr: "../" + huge}}
	c.Env = []corev1.EnvVar{{Name: huge + "=", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: huge}}}}
	text := podapi.Validate(p).ToAggregate().Error()
	assert.Less(t, len(text), 16<<10)
	assert.Contains(t, text, "... (1048576 bytes)")
	assert.Len(t, p.Name, 1<<20, "Validate does not modify the pod")

	c.Ports = make([]corev1.ContainerPort, 1000)
	errs := podapi.Validate(p)
	require.Len(t, errs, 101)
	assert.EqualError(t, errs[100], "pod: Forbidden: more than 100 errors, of which the first are reported")
}

// FuzzValidate checks that the validation of any pod is cheap.
func FuzzValidate(f *testing.F) {
	f.Add(uint16(10), uint16(20), uint16(1000), "v", "../x")
	f.Fuzz(func(t *testing.T, containers, ephemeral, entries uint16, name, value string) {
		p := podWith(int(containers)%1100, func(p *corev1.Pod, i int) {
			c := named(name, i)
			c.Image = value
			p.Spec.InitContainers = append(p.Spec.InitContainers, c)
		})
		for i := range int(ephemeral) % 1100 {
			e := corev1.EphemeralContainer{TargetContainerName: name}
			e.Name, e.Image = fmt.Sprint(name, i), value
			p.Spec.EphemeralContainers = append(p.Spec.EphemeralContainers, e)
		}
		for i := range int(entries) % 1100 {
			c := &p.Spec.Containers[0]
			c.Env = append(c.Env, corev1.EnvVar{Name: fmt.Sprint(name, i), Value: value})
			c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: name, MountPath: fmt.Sprint(value, i)})
			p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: fmt.Sprint(name, i)})
			p.Annotations[fmt.Sprint(name, i)] = value
		}
		podapi.Default(p)
		costtest.Check(t, costtest.Limit{}, func() {
			assert.LessOrEqual(t, len(podapi.Validate(p)), 101)
			podapi.Unsupported(p)
		})
	})
}

func BenchmarkValidateHostile(b *testing.B) {
	pods := hostilePods()
	for _, name := range []string{"targets of ephemeral containers", "mounts of volumes", "AppArmor annotations", "empty entries"} {
		for _, n := range []int{250, 500, 1000} {
			p := pods[name](n)
			b.Run(fmt.Sprintf("%s/%d", strings.ReplaceAll(name, " ", "-"), n), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					podapi.Validate(p)
				}
			})
		}
	}
}
