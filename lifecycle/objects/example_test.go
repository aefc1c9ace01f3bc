// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package objects_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seed81659283/nodeagent/lifecycle/objects"
	"github.com/seed81659283/nodeagent/lifecycle/podspec"
)

func ExampleMemory() {
	app := &corev1.ConfigMap{Data: map[string]string{"LEVEL": "info"}}
	app.Namespace, app.Name = "shop", "app"
	known := &objects.Memory{}
	if err := known.PutConfigMap(app); err != nil {
		fmt.Println(err)
	}

	source := corev1.EnvFromSource{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "app"}}}
	pod := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "web", EnvFrom: []corev1.EnvFromSource{source}}}}}
	pod.Namespace = "shop"
	c := &pod.Spec.Containers[0]
	refs, err := podspec.ResolveReferences(context.Background(), pod, c, known, nil)
	if err != nil {
		fmt.Println(err)
	}
	config, err := podspec.Container(pod, c, podspec.Launch{References: refs}, podspec.Options{})
	fmt.Println(config.Env, err)
	// Output:
	// [{LEVEL info}] <nil>
}

// A program stores its objects under versioned names, and deletes those of the previous version.
func ExampleMemory_PutSecret() {
	named := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: "shop", Name: name} }
	size := corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
	access := []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	store := &objects.Memory{}
	err := errors.Join(
		store.PutConfigMap(&corev1.ConfigMap{ObjectMeta: named("app-2"), Data: map[string]string{"LEVEL": "info"}}),
		store.PutSecret(&corev1.Secret{ObjectMeta: named("tls-2")}),
		store.PutService(&corev1.Service{ObjectMeta: named("web-2")}),
		store.PutPersistentVolumeClaim(&corev1.PersistentVolumeClaim{
			ObjectMeta: named("data-2"), Spec: corev1.PersistentVolumeClaimSpec{VolumeName: "disk-2", AccessModes: access},
		}),
		store.PutPersistentVolume(&corev1.PersistentVolume{
			ObjectMeta: metav1.ObjectMeta{Name: "disk-2"}, Spec: corev1.PersistentVolumeSpec{Capacity: size, AccessModes: access},
		}),
		store.PutCSIDriver(&storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: "disks.example.com"}}),
	)
	fmt.Println(err)
	store.DeleteConfigMap("shop", "app-1") // deleting a missing object is no error
	store.DeleteSecret("shop", "tls-1")
	store.DeleteService("shop", "web-1")
	store.DeletePersistentVolumeClaim("shop", "data-1")
	store.DeletePersistentVolume("disk-1")
	store.DeleteCSIDriver("old-disks.example.com")

	_, err = store.Secret(context.Background(), "shop", "tls-1")
	if e, ok := errors.AsType[*objects.Error](err); ok {
		fmt.Println(e.Kind, e.Name, e.Err)
	}
	// Output:
	// <nil>
	// secret tls-1 file does not exist
}

// Watch reports which pods must be refreshed.
func ExampleMemory_Watch() {
	store := &objects.Memory{}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	seen := make(chan string, 1000)
	go func() {
		done <- store.Watch(ctx, func(kind, namespace, name string) {
			switch kind {
			case objects.KindConfigMap, objects.KindSecret:
				seen <- fmt.Sprint("refresh volumes and variables of ", namespace, "/", name)
			case objects.KindService:
				seen <- fmt.Sprint("the variables of pods that start in ", namespace, " change")
			case objects.KindClaim, objects.KindPV, objects.KindCSIDriver:
				seen <- fmt.Sprint("mount the volumes of ", name)
			}
		})
	}()
	for waiting := true; waiting; { // wait for the start of the watch
		if err := store.PutConfigMap(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "app"}}); err != nil {
			fmt.Println(err)
		}
		select {
		case line := <-seen:
			fmt.Println(line)
			waiting = false
		case <-time.After(time.Millisecond):
		}
	}
	cancel()
	fmt.Println(<-done)
	// Output:
	// refresh volumes and variables of shop/app
	// <nil>
}
