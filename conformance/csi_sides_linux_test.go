// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package conformance_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	fakeclient "k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	kubeletvolume "k8s.io/kubernetes/pkg/volume"
	kubeletcsi "k8s.io/kubernetes/pkg/volume/csi"
	volumetesting "k8s.io/kubernetes/pkg/volume/testing"
	volumetypes "k8s.io/kubernetes/pkg/volume/util/types"

	"github.com/seed81659283/nodeagent/volume"
	"github.com/seed81659283/nodeagent/volume/csi"
)

// csiText returns a request as JSON with sorted keys.
func csiText(m proto.Message) string {
	text, err := protojson.Marshal(m)
	var v any
	if err == nil {
		err = json.Unmarshal(text, &v)
	}
	if err == nil {
		text, err = json.Marshal(v)
	}
	if err != nil {
		panic(err)
	}
	return string(text)
}

func csiGroup(info os.FileInfo) uint32 { return info.Sys().(*syscall.Stat_t).Gid }

// Objects of the cluster, equal for both sides.
func csiSecret(namespace, name string) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Data: map[string][]byte{"password": []byte("of " + namespace)}}
}

func csiAttachment(name string) *storagev1.VolumeAttachment {
	a := &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: name}}
	a.Status = storagev1.VolumeAttachmentStatus{Attached: true, AttachmentMetadata: map[string]string{"device": "vdb"}}
	return a
}

// csiAttached is the name of the VolumeAttachment of the volume handle "attached" (sha256 of handle, driver and node).
const csiAttached = "csi-5531fb53db725bb90c75ecec0a5b0a16843a4396641473481ca7f014ed72a216"

func csiToken(namespace, account, audience string) volume.Token {
	return volume.Token{Value: fmt.Sprintf("token of %s/%s for %q", namespace, account, audience), Expires: time.Date(2126, 1, 2, 3, 4, 5, 0, time.UTC)}
}

// csiKubelet runs the kubelet's plugin.
type csiKubelet struct {
	*csiSide

	plugin kubeletvolume.VolumePlugin
}

// csiLister returns the CSIDriver object of the input.
type csiLister struct{ s *csiSide }

func (l csiLister) List(labels.Selector) ([]*storagev1.CSIDriver, error) {
	return nil, errors.New("List is not expected")
}

func (l csiLister) Get(name string) (*storagev1.CSIDriver, error) {
	if l.s.in.Object == nil || name != csiDriver {
		return nil, apierrors.NewNotFound(storagev1.Resource("csidrivers"), name)
	}
	return &storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: *l.s.in.Object}, nil
}

func newCSIKubelet(t *testing.T) *csiKubelet {
	k := &csiKubelet{csiSide: newCSISide(t, "")}
	client := fakeclient.NewSimpleClientset(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: csiNode}},
		csiSecret(csiNamespace, "key"), csiSecret("infra", "key"), csiAttachment(csiAttached))
	client.PrependReactor("create", "serviceaccounts", func(action clienttesting.Action) (bool, runtime.Object, error) {
		create := action.(clienttesting.CreateActionImpl)
		r := create.GetObject().(*authenticationv1.TokenRequest).DeepCopy()
		audience := ""
		if len(r.Spec.Audiences) > 0 {
			audience = r.Spec.Audiences[0]
		}
		tok := csiToken(action.GetNamespace(), create.Name, audience)
		r.Status = authenticationv1.TokenRequestStatus{Token: tok.Value, ExpirationTimestamp: metav1.NewTime(tok.Expires)}
		return true, r, nil
	})
	host := volumetesting.NewFakeKubeletVolumeHostWithCSINodeName(t, k.root, client, kubeletcsi.ProbeVolumePlugins(), csiNode, csiLister{k.csiSide}, nil)
	if err := kubeletcsi.PluginHandler.RegisterPlugin(t.Context(), csiDriver, k.driver.Socket(), []string{"1.0.0"}, nil); err != nil {
		t.Fatal(err)
	}
	plugin, err := host.GetPluginMgr().FindPluginByName("kubernetes.io/csi")
	if err != nil {
		t.Fatal(err)
	}
	k.plugin = plugin
	return k
}

func (k *csiKubelet) run(in csiVolume) []csiStep {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.begin(in)
	switch in.Kind {
	case "inline":
		k.mount(in, kubeletvolume.NewSpecFromVolume(&in.pod().Spec.Volumes[0]), "data")
	case "filesystem":
		k.filesystem(in)
	default:
		k.block(in)
	}
	return k.steps
}

func (k *csiKubelet) noted(name string, err error) (ok, left bool) {
	return k.note(name, err, volumetypes.IsOperationFinishedError(err))
}

// mount publishes and unpublishes a filesystem volume.
func (k *csiKubelet) mount(in csiVolume, s *kubeletvolume.Spec, name string) {
	args := kubeletvolume.MounterArgs{FsGroup: in.Group, FSGroupChangePolicy: in.Policy, SELinuxLabel: in.Label}
	setUp := func() error {
		m, err := k.plugin.NewMounter(s, in.pod())
		if err != nil {
			return err
		}
		return m.SetUp(args)
	}
	ok, left := k.noted("publish", setUp())
	if ok && in.Again {
		args.IsRemount = true
		k.noted("again", setUp())
	}
	for tries := 0; left; tries++ {
		panicAfterTries(tries)
		u, err := k.plugin.NewUnmounter(name, in.pod().UID)
		if err == nil {
			err = u.TearDown()
		}
		ok, _ := k.noted("unpublish", err)
		left = !ok
	}
}

func (k *csiKubelet) filesystem(in csiVolume) {
	plugin := k.plugin.(kubeletvolume.DeviceMountableVolumePlugin)
	s := kubeletvolume.NewSpecFromPersistentVolume(in.pv(), in.ReadOnly)
	m, err := plugin.NewDeviceMounter()
	if err != nil {
		panic(err)
	}
	path, err := m.GetDeviceMountPath(s)
	if err != nil {
		panic(err)
	}
	ok, left := k.noted("stage", m.MountDevice(s, "", path, kubeletvolume.DeviceMounterArgs{FsGroup: in.Group, SELinuxLabel: in.Label}))
	if ok {
		k.mount(in, s, csiPV)
	}
	for tries := 0; left; tries++ {
		panicAfterTries(tries)
		u, err := plugin.NewDeviceUnmounter()
		if err == nil {
			err = u.UnmountDevice(path)
		}
		ok, _ := k.noted("unstage", err)
		left = !ok
	}
}

func (k *csiKubelet) block(in csiVolume) {
	plugin := k.plugin.(kubeletvolume.BlockVolumePlugin)
	s := kubeletvolume.NewSpecFromPersistentVolume(in.pv(), in.ReadOnly)
	mapper, err := plugin.NewBlockVolumeMapper(s, in.pod())
	if err != nil {
		panic(err)
	}
	m := mapper.(kubeletvolume.CustomBlockVolumeMapper)
	_, err = m.SetUpDevice()
	staged, left := k.noted("stage", err)
	if staged {
		_, err = m.MapPodDevice()
		ok, published := k.noted("publish", err)
		if ok && in.Again {
			_, err = m.MapPodDevice()
			k.noted("again", err)
		}
		for published {
			ok, _ := k.noted("unpublish", k.unmapper(in).UnmapPodDevice())
			published = !ok
		}
	}
	for tries := 0; left; tries++ {
		panicAfterTries(tries)
		ok, _ := k.noted("unstage", k.unmapper(in).TearDownDevice("", ""))
		left = !ok
	}
}

func (k *csiKubelet) unmapper(in csiVolume) kubeletvolume.CustomBlockVolumeUnmapper {
	u, err := k.plugin.(kubeletvolume.BlockVolumePlugin).NewBlockVolumeUnmapper(csiPV, in.pod().UID)
	if err != nil {
		panic(err)
	}
	return u.(kubeletvolume.CustomBlockVolumeUnmapper)
}

// csiOurs runs our plugin.
type csiOurs struct {
	*csiSide

	plugin *csi.Plugin
}

func (o *csiOurs) CSIDriver(_ context.Context, name string) (*storagev1.CSIDriver, error) {
	if o.in.Object == nil {
		return nil, fs.ErrNotExist
	}
	return &storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: *o.in.Object}, nil
}

func (o *csiOurs) Secret(_ context.Context, namespace, name string) (*corev1.Secret, error) {
	if name != "key" {
		return nil, fs.ErrNotExist
	}
	return csiSecret(namespace, name), nil
}

func (o *csiOurs) VolumeAttachment(_ context.Context, name string) (*storagev1.VolumeAttachment, error) {
	if name != csiAttached {
		return nil, fs.ErrNotExist
	}
	return csiAttachment(name), nil
}

func newCSIOurs(t *testing.T) *csiOurs {
	registry := t.TempDir()
	o := &csiOurs{csiSide: newCSISide(t, registry)}
	var err error
	o.plugin, err = csi.New(csi.Options{
		Registry: registry, NodeName: csiNode, Drivers: o, Secrets: o, Attachments: o,
		Tokens: volume.TokenIssuerFunc(func(_ context.Context, r volume.TokenRequest) (volume.Token, error) {
			return csiToken(r.Namespace, r.ServiceAccount, r.Audience), nil
		}),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- o.plugin.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	for deadline := time.Now().Add(time.Minute); !slices.Contains(o.driver.RegistrationResults(), "registered"); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the driver is not registered: ", o.driver.RegistrationResults())
		}
	}
	return o
}

func (o *csiOurs) run(in csiVolume) []csiStep {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.begin(in)
	v := o.volume(in)
	if in.Kind == "inline" {
		o.publish(in, v)
		return o.steps
	}
	d, err := o.plugin.Device(context.Background(), v)
	if err != nil {
		panic(err)
	}
	v.Device, v.StagingDir = d, filepath.Join(v.PluginDir, d.Dir)
	can, err := o.plugin.MountsWithLabel(context.Background(), v)
	if err != nil {
		panic(err)
	}
	if can { // as in the engine of package volume
		v.SELinuxLabel = in.Label
	}
	ok, left := o.noted("stage", o.plugin.Stage(context.Background(), v))
	if ok {
		o.publish(in, v)
	}
	for tries := 0; left; tries++ {
		panicAfterTries(tries)
		ok, _ := o.noted("unstage", o.plugin.Unstage(context.Background(), recordedVolume(v)))
		left = !ok
	}
	return o.steps
}

func (o *csiOurs) noted(name string, err error) (ok, left bool) {
	_, final := errors.AsType[*volume.FinalError](err)
	return o.note(name, err, final)
}

func (o *csiOurs) publish(in csiVolume, v volume.Volume) {
	_, err := o.plugin.SetUp(context.Background(), v)
	ok, left := o.noted("publish", err)
	if ok && in.Again {
		v.Update = true
		_, err := o.plugin.SetUp(context.Background(), v)
		o.noted("again", err)
	}
	for tries := 0; left; tries++ {
		panicAfterTries(tries)
		ok, _ := o.noted("unpublish", o.plugin.TearDown(context.Background(), recordedVolume(v)))
		left = !ok
	}
}

// panicAfterTries panics after many failed teardowns: a driver fails only a few times.
func panicAfterTries(tries int) {
	if tries > 100 {
		panic("the volume cannot be torn down")
	}
}

// recordedVolume returns a volume without the fields that its record does not have.
func recordedVolume(v volume.Volume) volume.Volume {
	v.Pod, v.Source, v.PV = nil, nil, nil
	return v
}

func (o *csiOurs) volume(in csiVolume) volume.Volume {
	p := in.pod()
	v := volume.Volume{
		Pod: p, Source: &p.Spec.Volumes[0], UID: string(p.UID), Name: "data", SpecName: "data", Plugin: volume.CSI, PodDir: filepath.Join(o.root, "pods/uid-1"),
		PluginDir: filepath.Join(o.root, "plugins"), ReadOnly: in.ReadOnly, Block: in.Kind == "block", Warn: func(string, string) {},
	}
	if in.Kind != "inline" {
		v.PV, v.SpecName = in.pv(), csiPV
	}
	v.Dir = filepath.Join(v.PodDir, "volumes/kubernetes.io~csi", v.SpecName)
	return v
}
