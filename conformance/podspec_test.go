// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package conformance_test

import (
	_ "embed"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"
	podutil "k8s.io/kubernetes/pkg/api/pod"
	"k8s.io/kubernetes/pkg/apis/core"
	corev1defaults "k8s.io/kubernetes/pkg/apis/core/v1"
	"k8s.io/kubernetes/pkg/apis/core/validation"
	"k8s.io/kubernetes/pkg/capabilities"
	"k8s.io/kubernetes/pkg/kubelet/envvars"
	envutil "k8s.io/kubernetes/pkg/kubelet/util/env"
	"sigs.k8s.io/yaml"

	"github.com/seed81659283/nodeagent/conformance"
	"github.com/seed81659283/nodeagent/internal/lifecycle/podenv"
	"github.com/seed81659283/nodeagent/lifecycle/podapi"
	"github.com/seed81659283/nodeagent/lifecycle/podspec"
)

func TestValidate(t *testing.T) {
	capabilities.Initialize(capabilities.Capabilities{AllowPrivileged: true})
	validate.Run(t, flags.AtMost(4_000)) // the API server's validation of an input takes ten milliseconds
}
func TestEnvFile(t *testing.T)  { run(t, envFile) }
func FuzzEnvFile(f *testing.F)  { fuzz(f, envFile) }
func TestServices(t *testing.T) { run(t, services) }
func FuzzServices(f *testing.F) { fuzz(f, services) }

// fullPod is a valid pod that sets nearly every field that a node reads.
//
//go:embed testdata/pod.yaml
var fullPod []byte

// verdict reports whether the pod with its defaults is invalid.
type verdict struct{ Refused bool }

var validate = conformance.Comparison[*corev1.Pod, verdict]{
	Make: func(c *conformance.Choices) *corev1.Pod {
		pod := &corev1.Pod{}
		if err := yaml.UnmarshalStrict(fullPod, pod); err != nil {
			panic(err)
		}
		for range 1 + c.Int(2) {
			changeRandomValue(c, pod)
		}
		if c.OneIn(10) {
			annotate(c, pod)
		}
		if c.OneIn(100) {
			pod.Spec.OS = &corev1.PodOS{Name: corev1.Windows} // the full pod has no OS, so that changeRandomValue never sets it
		}
		return pod
	},
	Kubelet: func(pod *corev1.Pod) verdict {
		pod = pod.DeepCopy()
		corev1defaults.SetObjectDefaults_Pod(pod)
		internal := &core.Pod{}
		if err := corev1defaults.Convert_v1_Pod_To_core_Pod(pod, internal, nil); err != nil {
			return verdict{Refused: true}
		}
		o := podutil.GetValidationOptionsFromPodSpecAndMeta(&internal.Spec, nil, &internal.ObjectMeta, nil)
		o.ResourceIsPod = true
		errs := slices.DeleteFunc(validation.ValidatePodCreate(internal, o), func(err *field.Error) bool {
			return err.Detail == "cannot be set on create" // ephemeral containers are added later
		})
		return verdict{Refused: len(errs) > 0}
	},
	Ours: func(pod *corev1.Pod) verdict {
		pod = pod.DeepCopy()
		podapi.Default(pod)
		return verdict{Refused: len(podapi.Validate(pod)) > 0}
	},
	Exceptions: []conformance.Exception[*corev1.Pod, verdict]{{
		Name:   "Windows",
		Reason: "the fields that a Windows pod must not set are not validated, because Windows pods are rejected",
		When:   func(pod *corev1.Pod) bool { return pod.Spec.OS != nil && pod.Spec.OS.Name == corev1.Windows },
		Want:   func(*corev1.Pod, verdict) verdict { return verdict{} },
	}},
}

// annotate sets an annotation, a node selector, or a claim volume with the claim of an ephemeral volume, valid or not.
func annotate(c *conformance.Choices, pod *corev1.Pod) {
	if pod.Annotations == nil {
		pod.Annotations = map[string]string{}
	}
	switch c.Int(4) {
	case 0:
		pod.Annotations[corev1.PodDeletionCost] = conformance.Pick(c, "0", "-1", "+1", "007", "", "2147483647", "2147483648", "-2147483649", "x")
	case 1:
		key := "container.seccomp.security.alpha.kubernetes.io/" + conformance.Pick(c, pod.Spec.Containers[0].Name, "no-such-container")
		if c.OneIn(2) {
			key = "seccomp.security.alpha.kubernetes.io/pod"
		}
		pod.Annotations[key] = conformance.Pick(c, "runtime/default", "docker/default", "unconfined", "localhost/a.json", "localhost/../a", "localhost//a", "x", "")
	case 2:
		pod.Spec.NodeSelector = map[string]string{conformance.Pick(c, "zone", "a.b/c", "a b", ""): conformance.Pick(c, "a", "", "a b", "-a", "A_b")}
	case 3:
		claim := corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: pod.Name + conformance.Pick(c, "-created", "-other")}}
		created := corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{VolumeClaimTemplate: &corev1.PersistentVolumeClaimTemplate{
			Spec: corev1.PersistentVolumeClaimSpec{
				AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
				Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
			},
		}}}
		pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: "claim", VolumeSource: claim}, corev1.Volume{Name: "created", VolumeSource: created})
	}
}

// place is a value in a pod that can be changed.
type place struct {
	path  string
	value reflect.Value
}

// compared are the volume sources that this version supports.
var compared = []string{"Image", "EmptyDir", "HostPath", "ConfigMap", "Secret", "DownwardAPI", "Projected"}

// places returns all values below v, except those that only a scheduler reads, and those in unsupported volume sources.
func places(path string, v reflect.Value) []place {
	for _, skipped := range []string{
		".Spec.Affinity", ".Spec.Tolerations", ".Spec.Topology", ".Spec.Scheduling", ".Spec.Eviction",
		".Spec.ResourceClaims", ".Spec.Preemption", ".Spec.PriorityClass", ".Spec.ImagePullSecrets", ".Spec.DeprecatedServiceAccount",
		".Claims", ".WindowsOptions", ".DefaultUser", ".EmptyDir.Mode",
		".ClusterTrustBundle.Name", ".SignerName", ".LabelSelector", ".UserAnnotations", ".MaxExpirationSeconds",
	} {
		if strings.Contains(path, skipped) {
			return nil
		}
	}
	if strings.Contains(path, ".VolumeSource.") && strings.HasSuffix(path, ".User") {
		return nil // its feature gate is disabled
	}
	if at := strings.Index(path, ".VolumeSource."); at >= 0 && !slices.ContainsFunc(compared, func(source string) bool {
		return strings.HasPrefix(path[at+len(".VolumeSource."):], source)
	}) {
		return nil
	}
	var list []place
	switch v.Kind() {
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[resource.Quantity]() || v.Type() == reflect.TypeFor[intstr.IntOrString]() {
			return nil // these types have no free fields
		}
		for i := range v.NumField() {
			list = append(list, places(path+"."+v.Type().Field(i).Name, v.Field(i))...)
		}
	case reflect.Pointer:
		list = append(list, place{path, v})
		if !v.IsNil() {
			list = append(list, places(path, v.Elem())...)
		}
	case reflect.Slice:
		list = append(list, place{path, v})
		for i := range v.Len() {
			list = append(list, places(path, v.Index(i))...)
		}
	case reflect.String, reflect.Int32, reflect.Int64, reflect.Bool:
		list = append(list, place{path, v})
	}
	return list
}

// changeRandomValue changes one random value of a pod.
func changeRandomValue(c *conformance.Choices, pod *corev1.Pod) {
	list := places(".Spec", reflect.ValueOf(&pod.Spec).Elem())
	v := list[(c.Int(256)<<8|c.Int(256))%len(list)].value
	switch v.Kind() {
	case reflect.String:
		v.SetString(conformance.Pick(c, "", "a", "A", "a.b", "a_b", "..", "../x", "a/../b", "/x", "a b", "http", "80", "Always", "Never",
			"OnFailure", "IfNotPresent", "HTTP", "HTTPS", "TCP", "udp", "Localhost", "RuntimeDefault", "Unconfined", "Bidirectional",
			"HostToContainer", "None", "Enabled", "IfPossible", "Disabled", "main", "init", "sidecar", "debug", "data", "image", "claim",
			"v1", "metadata.name", "spec.host", "status.podIP", "metadata.labels['a b']", "limits.cpu", "requests.hugepages-2Mi",
			"1.2.3.4", "1.2.3.04", "::1", "SIGKILL", "SIGFOO", "Restart", "RestartAllContainers", "In", "NotIn", "cpu", "memory",
			"NotRequired", "RestartContainer", "Merge", "Strict", "OnRootMismatch", "TLS", "x=y", "HTTP2", "Unmasked", "CAP_SYS_ADMIN",
			"noexec", "net.ipv4.x", "linux", "windows", " i", strings.Repeat("a", 64), strings.Repeat("a", 254)))
	case reflect.Int32, reflect.Int64:
		v.SetInt(conformance.Pick[int64](c, 0, 1, -1, 2, 29, 30, 31, 80, 81, 65535, 65536, 1<<31-1))
	case reflect.Bool:
		v.SetBool(!v.Bool())
	case reflect.Pointer:
		if v.IsNil() {
			v.Set(reflect.New(v.Type().Elem()))
		} else {
			v.SetZero()
		}
	case reflect.Slice:
		switch n := v.Len(); {
		case n > 1 && c.OneIn(2):
			v.Set(v.Slice(0, n-1))
		case n > 0 && c.OneIn(2):
			v.Set(reflect.Append(v, v.Index(n-1)))
		default:
			v.Set(reflect.Append(v, reflect.Zero(v.Type().Elem())))
		}
	}
}

var envFile = conformance.Comparison[string, answer]{
	Make: func(c *conformance.Choices) string {
		var b strings.Builder
		for range c.Int(12) {
			b.WriteString(conformance.Pick(c, "A", "B", "=", "'", " ", "\t", "\n", "\r", "#", "x", "A='1'", "B='2'\n", "\n\n", "A=", "='", "\"", "A= 'z'\n"))
		}
		return b.String()
	},
	Kubelet: func(text string) answer {
		file, err := os.CreateTemp("", "envfile")
		if err != nil {
			panic(err)
		}
		defer os.Remove(file.Name())
		if _, err := file.WriteString(text); err != nil {
			panic(err)
		}
		file.Close()
		value, err := envutil.ParseEnv(file.Name(), "A")
		return answer{Text: value, Refused: err != nil}
	},
	Ours: func(text string) answer {
		value, err := podenv.ParseEnvFile([]byte(text), "A")
		return answer{Text: value, Refused: err != nil}
	},
}

var services = conformance.Comparison[*corev1.Service, map[string]string]{
	Make: func(c *conformance.Choices) *corev1.Service {
		s := &corev1.Service{}
		s.Namespace, s.Name = "default", conformance.Pick(c, "a", "a-b", "kubernetes")
		s.Spec.ClusterIP = conformance.Pick(c, "1.2.3.4", "fd00::1", "", corev1.ClusterIPNone)
		for range 1 + c.Int(3) {
			s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{
				Name: conformance.Pick(c, "", "x", "x-y"), Port: int32(1 + c.Int(3)), Protocol: conformance.Pick(c, "", corev1.ProtocolTCP, corev1.ProtocolUDP),
			})
		}
		return s
	},
	Kubelet: func(s *corev1.Service) map[string]string {
		env := make(map[string]string)
		for _, e := range envvars.FromServices([]*corev1.Service{s}) {
			env[e.Name] = e.Value
		}
		return env
	},
	Ours: func(s *corev1.Service) map[string]string {
		pod := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c"}}}}
		pod.Namespace = s.Namespace
		launch := podspec.Launch{References: podspec.References{Services: []*corev1.Service{s}}}
		config, err := podspec.Container(pod, &pod.Spec.Containers[0], launch, podspec.Options{})
		if err != nil {
			panic(err)
		}
		env := make(map[string]string)
		for _, e := range config.Env {
			env[e.Name] = e.Value
		}
		return env
	},
}
