// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package csi sets up volumes with CSI drivers (specification 1.13). It registers the drivers of a node, and is a plugin of
// package volume for inline volumes and PVs, file systems and block devices. It neither runs drivers nor provisions or attaches
// volumes.
//
//	plugin, err := csi.New(csi.Options{Registry: "/var/lib/kubelet/plugins_registry", NodeName: "n1", Drivers: dir, Secrets: dir})
//	volumes, err := volume.New(volume.Options{Root: "/var/lib/kubelet/pods", Plugins: map[string]volume.Plugin{volume.CSI: plugin}})
//	go plugin.Run(ctx)
//	go volumes.Run(ctx)
//
// # Model
//
// A [Plugin] watches the plugin registry directory, where drivers register. A PV is staged once on the node, if its driver has
// STAGE_UNSTAGE_VOLUME, and published for each pod. The calls depend on the capabilities of the driver, on the PV, and on the
// CSIDriver object: podInfoOnMount, tokenRequests, fsGroupPolicy, requiresRepublish, volumeLifecycleModes, attachRequired,
// seLinuxMount. Without an API server, CSIDriver objects come from files. A driver without a CSIDriver object serves PVs only,
// and nothing is attached.
//
// [Options].NodeUpdater receives the NodeGetInfo response of each driver, and writes it to the Node and CSINode objects: see
// [NodeInfo].
//
// # On disk
//
// The layout is that of the kubelet. A volume of a pod is mounted at Dir/mount and staged at
// PluginDir/kubernetes.io/csi/DRIVER/SHA256/globalmount. Block devices are below PluginDir/kubernetes.io/csi/volumeDevices.
// Beside each mount, vol_data.json names driver and volume handle. It is written before the driver is called. With it, this
// package can tear down a volume of the kubelet, and vice versa.
//
// # Faulty drivers
//
// All calls of one operation share a deadline ([Options].Timeout). Each operation opens a connection, so that a restarted driver
// is used at once. The size of responses is limited. A driver that hangs delays only its own volumes.
//
// # Concurrency
//
// All methods may be called from several goroutines, for one volume or device one at a time. Run is called once. Hooks are called
// without a lock.
//
// # Errors
//
// A failed call is a [*CallError]. If the call certainly had no effect, the plugin cleans up and returns a [volume.FinalError],
// as it does for errors before the first call. After any other error the driver may still be working, and the volume is
// unpublished or unstaged. No error contains a secret or token, even if the driver returns it.
//
// # Differs from the kubelet
//
// The behaviour is that of pkg/volume/csi at 1.37.1. DIFFERENCES.md lists all differences, with these:
//
//   - No API server is needed. Inline volumes need a CSIDriver object, which may be a file.
//   - Missing fields of a CSIDriver object have the defaults of the API server.
//   - If a newer version of a driver has registered, removing the socket of the old version does not deregister it.
//   - Volumes that wait for a driver are retried when it has registered.
//
// Test kit: package csitest has a fake driver that records calls and can fail.
package csi
