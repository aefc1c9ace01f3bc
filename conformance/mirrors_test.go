// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package conformance_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clientset "k8s.io/client-go/kubernetes"
	clientcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	podutil "k8s.io/kubernetes/pkg/api/pod"
	"k8s.io/kubernetes/pkg/apis/core"
	corev1conversion "k8s.io/kubernetes/pkg/apis/core/v1"
	"k8s.io/kubernetes/pkg/kubelet"

	"github.com/seed81659283/nodeagent/apiserver"
	"github.com/seed81659283/nodeagent/conformance"
)

func TestMirrors(t *testing.T) { mirrors.Run(t, flags.AtMost(100_000)) }
func FuzzMirrors(f *testing.F) { fuzz(f, mirrors) }

// mirrorInput has the static pods of a node, the mirror pods in its API server, and other inputs. Names of static pods are
// unique, and so are names of mirror pods.
type mirrorInput struct {
	Static, Mirrors []*corev1.Pod
	Node            *corev1.Node // nil: the Node does not exist
	Running         []string     // names of running static pods, also of pods that were removed from their source
}

// mirrorOutput has the requests to the API server, sorted by name.
type mirrorOutput struct {
	Deleted []string
	Created []*corev1.Pod // the fields that the API server keeps
}

// mirrors compares the created and deleted mirror pods.
var mirrors = conformance.Comparison[mirrorInput, mirrorOutput]{
	Make:    makeMirrors,
	Kubelet: kubeletMirrors,
	Ours:    ourMirrors,
	Same:    func(kubelet, ours mirrorOutput) bool { return equality.Semantic.DeepEqual(kubelet, ours) },
	Exceptions: []conformance.Exception[mirrorInput, mirrorOutput]{{
		Name: "references", Reason: "no request for a mirror pod that refers to API objects, because the API server would reject it",
		When: func(in mirrorInput) bool { return slices.ContainsFunc(in.Static, refersToAPI) },
		Want: func(in mirrorInput, kubelet mirrorOutput) mirrorOutput {
			kubelet.Created = slices.DeleteFunc(kubelet.Created, refersToAPI)
			return kubelet
		},
	}},
}

// refersToAPI reports whether the admission plugin NodeRestriction would reject the mirror pod.
func refersToAPI(pod *corev1.Pod) bool {
	var internal core.Pod
	if err := corev1conversion.Convert_v1_Pod_To_core_Pod(pod.DeepCopy(), &internal, nil); err != nil {
		panic(err)
	}
	refers, _, err := podutil.HasAPIObjectReference(&internal)
	return refers || err != nil
}

func kubeletMirrors(in mirrorInput) mirrorOutput {
	nodes := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	if in.Node != nil {
		if err := nodes.Add(in.Node); err != nil {
			panic(err)
		}
	}
	server := &mirrorServer{}
	kubelet.ConformanceMirrors(context.Background(), server, corelisters.NewNodeLister(nodes), "n1",
		slices.Concat(in.Static, in.Mirrors), func(fullName string) bool {
			name, _, _ := strings.Cut(fullName, "_")
			return slices.Contains(in.Running, name)
		})
	return server.sorted()
}

func ourMirrors(in mirrorInput) mirrorOutput {
	server := &mirrorServer{}
	for _, action := range apiserver.PlanMirrors(in.Static, in.Mirrors, apiserver.MirrorInput{
		Node: in.Node, SourcesComplete: true, StillRunning: func(_, name string) bool { return slices.Contains(in.Running, name) },
	}) {
		if action.Delete != nil {
			server.Deleted = append(server.Deleted, action.Delete.Name)
		}
		if action.Create != nil {
			server.create(action.Create)
		}
	}
	return server.sorted()
}

// mirrorServer records requests and returns success.
type mirrorServer struct {
	clientset.Interface
	clientcorev1.CoreV1Interface
	clientcorev1.PodInterface
	mirrorOutput
}

func (s *mirrorServer) CoreV1() clientcorev1.CoreV1Interface  { return s }
func (s *mirrorServer) Pods(string) clientcorev1.PodInterface { return s }
func (s *mirrorServer) create(pod *corev1.Pod)                { s.Created = append(s.Created, storedPod(pod)) }

func (s *mirrorServer) Delete(_ context.Context, name string, o metav1.DeleteOptions) error {
	if o.GracePeriodSeconds == nil || *o.GracePeriodSeconds != 0 {
		panic("deletion of a mirror pod with a grace period")
	}
	s.Deleted = append(s.Deleted, name)
	return nil
}

func (s *mirrorServer) Create(_ context.Context, pod *corev1.Pod, _ metav1.CreateOptions) (*corev1.Pod, error) {
	s.create(pod)
	return pod, nil
}

// storedPod returns the fields of a created pod that the API server keeps.
func storedPod(pod *corev1.Pod) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: pod.Namespace, Name: pod.Name, Labels: pod.Labels, Annotations: pod.Annotations, OwnerReferences: pod.OwnerReferences,
		},
		Spec: pod.Spec,
	}
}

func (s *mirrorServer) sorted() mirrorOutput {
	slices.Sort(s.Deleted)
	slices.SortFunc(s.Created, func(a, b *corev1.Pod) int { return strings.Compare(a.Name, b.Name) })
	return s.mirrorOutput
}

func makeMirrors(c *conformance.Choices) (in mirrorInput) {
	for _, name := range []string{"a", "b", "c"} {
		hash := conformance.Pick(c, "h1", "h2", "")
		if !c.OneIn(3) {
			in.Static = append(in.Static, makeStatic(c, name, hash))
		}
		if !c.OneIn(3) {
			mirror := makeStatic(c, name, "")
			mirror.UID = types.UID("mirror-" + name)
			mirror.Annotations = map[string]string{
				"kubernetes.io/config.source": "api", corev1.MirrorPodAnnotationKey: conformance.Pick(c, hash, "h0", ""),
			}
			if c.OneIn(6) {
				at := metav1.NewTime(sceneTime)
				mirror.DeletionTimestamp = &at
			}
			in.Mirrors = append(in.Mirrors, mirror)
		}
		if c.OneIn(4) {
			in.Running = append(in.Running, name)
		}
	}
	if !c.OneIn(8) {
		in.Node = &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: conformance.Pick[types.UID](c, "node-uid", "other", "")}}
		if c.OneIn(8) {
			at := metav1.NewTime(sceneTime)
			in.Node.DeletionTimestamp = &at
		}
	}
	return in
}

// makeStatic returns a static pod, sometimes with a reference to an API object.
func makeStatic(c *conformance.Choices, name, hash string) *corev1.Pod {
	pod := conformance.Pod(c)
	pod.ObjectMeta = metav1.ObjectMeta{
		Namespace: "default", Name: name, UID: types.UID("static-" + name + hash), ResourceVersion: conformance.Pick(c, "", "7"),
		Labels: conformance.Pick(c, nil, map[string]string{"a": "b"}),
		Annotations: map[string]string{
			"kubernetes.io/config.source": conformance.Pick(c, "file", "http"), "kubernetes.io/config.hash": hash, "own": "x",
		},
	}
	if hash == "" {
		delete(pod.Annotations, "kubernetes.io/config.hash")
	}
	if c.OneIn(4) {
		addReference(c, pod)
	}
	return pod
}

// addReference adds a field that may refer to an API object.
func addReference(c *conformance.Choices, pod *corev1.Pod) {
	name := corev1.LocalObjectReference{Name: conformance.Pick(c, "x", "")}
	container := &corev1.Container{}
	if len(pod.Spec.Containers) > 0 {
		container = &pod.Spec.Containers[0]
	}
	switch c.Int(10) {
	case 0:
		pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: "v", VolumeSource: volumeSource(c, &name)})
	case 1:
		pod.Spec.ServiceAccountName = conformance.Pick(c, "default", "")
	case 2:
		pod.Spec.ImagePullSecrets = append(pod.Spec.ImagePullSecrets, name)
	case 3:
		container.Env = append(container.Env, corev1.EnvVar{Name: "E", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: name}}})
	case 4:
		container.Env = append(container.Env, corev1.EnvVar{Name: "E", ValueFrom: &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{LocalObjectReference: name}}})
	case 5:
		container.EnvFrom = append(container.EnvFrom, corev1.EnvFromSource{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: name}})
	case 6:
		container.EnvFrom = append(container.EnvFrom, corev1.EnvFromSource{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: name}})
	case 7:
		pod.Spec.ResourceClaims = append(pod.Spec.ResourceClaims, corev1.PodResourceClaim{Name: "c"})
	case 8:
		pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: "p", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
			Sources: []corev1.VolumeProjection{conformance.Pick(c,
				corev1.VolumeProjection{DownwardAPI: &corev1.DownwardAPIProjection{}},
				corev1.VolumeProjection{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{}},
				corev1.VolumeProjection{Secret: &corev1.SecretProjection{LocalObjectReference: name}},
				corev1.VolumeProjection{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: name}},
				corev1.VolumeProjection{ClusterTrustBundle: &corev1.ClusterTrustBundleProjection{Path: "p"}},
				corev1.VolumeProjection{PodCertificate: &corev1.PodCertificateProjection{}},
			)},
		}}})
	case 9:
		container.Env = append(container.Env, corev1.EnvVar{Name: "E", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "metadata.name"}}})
	}
}

// volumeSource returns a volume of any type.
func volumeSource(c *conformance.Choices, secret *corev1.LocalObjectReference) corev1.VolumeSource {
	if c.OneIn(2) {
		secret = nil
	}
	return conformance.Pick(c,
		corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}},
		corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{}},
		corev1.VolumeSource{DownwardAPI: &corev1.DownwardAPIVolumeSource{}},
		corev1.VolumeSource{NFS: &corev1.NFSVolumeSource{}},
		corev1.VolumeSource{Image: &corev1.ImageVolumeSource{}},
		corev1.VolumeSource{GitRepo: &corev1.GitRepoVolumeSource{}},
		corev1.VolumeSource{ISCSI: &corev1.ISCSIVolumeSource{SecretRef: secret}},
		corev1.VolumeSource{CephFS: &corev1.CephFSVolumeSource{SecretRef: secret}},
		corev1.VolumeSource{Cinder: &corev1.CinderVolumeSource{SecretRef: secret}},
		corev1.VolumeSource{FlexVolume: &corev1.FlexVolumeSource{SecretRef: secret}},
		corev1.VolumeSource{RBD: &corev1.RBDVolumeSource{SecretRef: secret}},
		corev1.VolumeSource{ScaleIO: &corev1.ScaleIOVolumeSource{SecretRef: secret}},
		corev1.VolumeSource{StorageOS: &corev1.StorageOSVolumeSource{SecretRef: secret}},
		corev1.VolumeSource{FC: &corev1.FCVolumeSource{}},
		corev1.VolumeSource{Quobyte: &corev1.QuobyteVolumeSource{}},
		corev1.VolumeSource{AzureDisk: &corev1.AzureDiskVolumeSource{}},
		corev1.VolumeSource{AzureFile: &corev1.AzureFileVolumeSource{SecretName: "s"}},
		corev1.VolumeSource{Glusterfs: &corev1.GlusterfsVolumeSource{}},
		corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{}},
		corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "s"}},
		corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{}},
		corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}},
		corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{}},
		corev1.VolumeSource{},
	)
}
