// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package csi makes volumes by CSI drivers (specification 1.13): it registers the drivers of a node and is a plugin of package
// volume, for inline volumes and for those with a claim, file systems and block devices. It runs no driver and talks to no
// controller: what has to be provisioned or attached is so before, or needs neither.
//
// # Model
//
// A [Plugin] knows the drivers that register themselves in a directory, and makes volumes by them:
//
//	plugin, err := csi.New(csi.Options{Registry: "/var/lib/kubelet/plugins_registry", NodeName: "n1", Drivers: dir, Secrets: dir})
//	volumes, err := volume.New(volume.Options{Root: "/var/lib/kubelet/pods", Plugins: map[string]volume.Plugin{volume.CSI: plugin}})
//	go plugin.Run(ctx)
//	go volumes.Run(ctx)
//
// A volume with a claim is staged once on the node, by a driver that does that, and published for each pod. How it is done
// depends on what the driver says it can do, on its CSIDriver object (podInfoOnMount, tokenRequests, fsGroupPolicy,
// requiresRepublish, volumeLifecycleModes, attachRequired) and on the PV. Without an API server the objects are files, or there are
// none: a driver without one is used for volumes with a claim, and nothing is attached.
//
// What drivers say about the node goes to [Options].Node; [NodeInfo] puts it into Node and CSINode objects.
//
// # On disk
//
// The layout is the kubelet's. A pod has a file system at Dir/mount, with vol_data.json beside it. It is staged at
// PluginDir/kubernetes.io/csi/DRIVER/SHA256/globalmount, again with vol_data.json beside it. Block devices are below
// PluginDir/kubernetes.io/csi/volumeDevices. The file says which driver has the volume: with it, this package takes down what the
// kubelet has made, and the other way round. It is written before the driver is called.
//
// # Drivers that misbehave
//
// All calls of one operation have a deadline together ([Options].Timeout). A connection is for one operation, so that a driver
// which was started again is found at once, and its answers are bounded. A driver that hangs delays its own volumes.
//
// # Concurrency
//
// All methods may be called from several goroutines, those about one volume or one device one at a time. Run is called once. Hooks
// are called with no lock held.
//
// A driver whose CSIDriver object has seLinuxMount gets the SELinux label of a volume as a mount option, if package volume has one for it.
//
// # Errors
//
// A call that fails is a [*CallError]. If it has certainly had no effect, all that was made for it is removed and the error is a
// [volume.FinalError]; an error before the first call is one, too. After any other the driver may still be at work, and the volume is
// unpublished or unstaged before it is forgotten. No error has the value of a secret or a token in it, even if the driver repeats it.
//
// # Differs from the kubelet
//
// The behaviour is that of pkg/volume/csi at 1.37.1. What a user must act on, with the rest in DIFFERENCES.md:
//
//   - Nothing needs an API server. Inline volumes need a CSIDriver object, which may be a file.
//   - What is missing in a CSIDriver object has the default of the API server.
//   - A driver whose successor has registered itself does not take that with it when its own socket goes.
//   - Volumes that wait for a driver are tried again when it has registered itself.
//
// Test kit: package csitest has a driver that records its calls and fails as it is told.
package csi
