// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
)

const (
	// StorageClass is the class of PersistentVolumeClaims that name none. Its volumes are
	// made at once, and simulated as the nodes are: they hold nothing. Where no nodes are simulated
	// they are folders of the node that the first pod runs on, made with that pod.
	StorageClass = "simulated"
	// provisionerName is who makes them.
	provisionerName = "testing.sandlot.io/simulated"
	// simulatedVolumes is where the volumes are on a node, below nodeLib, which is NodeLib of this machine.
	nodeLib, simulatedVolumes = "/var/lib", "simulated"

	// annotationProvisioner is where kube-controller-manager asks a provisioner for the
	// volume of a claim, annotationProvisionedBy where it is asked not to delete it itself.
	annotationProvisioner   = "volume.kubernetes.io/storage-provisioner"
	annotationProvisionedBy = "pv.kubernetes.io/provisioned-by"
	// annotationSelectedNode is the node of the pod that waits for the volume of a claim.
	annotationSelectedNode = "volume.kubernetes.io/selected-node"
)

// NodeFolder returns the folder of what a real node keeps.
func (c *ControlPlane) NodeFolder(node string) string {
	return filepath.Join(c.options.Dir, "nodes", node)
}

// NodeLib is what a real node has at /var/lib, below its folder.
const NodeLib = "lib"

// provisioner makes the volumes of StorageClass and deletes those that are released.
// kube-controller-manager binds them. The library for provisioners is made for drivers
// of real storage, and would bring CSI and its servers into every build.
type provisioner struct {
	client  kubernetes.Interface
	plane   *ControlPlane
	factory informers.SharedInformerFactory
	queue   workqueue.TypedRateLimitingInterface[volumeKey]
	cancel  context.CancelFunc
	worker  sync.WaitGroup
}

// volumeKey names a claim, or a volume if it has no namespace.
type volumeKey = cache.ObjectName

// startProvisioner makes StorageClass, unless it is there, and serves it until stop.
func startProvisioner(ctx context.Context, client kubernetes.Interface, plane *ControlPlane) (*provisioner, error) {
	class := &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{
			Name:        StorageClass,
			Annotations: map[string]string{"storageclass.kubernetes.io/is-default-class": "true"},
		},
		Provisioner: provisionerName,
	}
	if plane.hasOnlyRealNodes() {
		class.VolumeBindingMode = new(storagev1.VolumeBindingWaitForFirstConsumer)
	}
	if _, err := client.StorageV1().StorageClasses().Create(ctx, class, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		return nil, fmt.Errorf("creating a storage class: %w", err)
	}
	p := &provisioner{
		client:  client,
		plane:   plane,
		factory: informers.NewSharedInformerFactory(client, 0),
		queue:   workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[volumeKey]()),
	}
	enqueue := func(object any) {
		if meta, ok := object.(metav1.Object); ok { // what is gone is of no concern
			p.queue.Add(cache.MetaObjectToName(meta))
		}
	}
	handler := cache.ResourceEventHandlerFuncs{AddFunc: enqueue, UpdateFunc: func(_, object any) { enqueue(object) }}
	core := p.factory.Core().V1()
	for _, informer := range []cache.SharedIndexInformer{core.PersistentVolumeClaims().Informer(), core.PersistentVolumes().Informer()} {
		if _, err := informer.AddEventHandler(handler); err != nil {
			return nil, err
		}
	}
	run, cancel := context.WithCancel(context.WithoutCancel(ctx)) // ends with stop
	p.cancel = cancel
	p.factory.Start(run.Done())
	p.worker.Go(func() { p.work(run) })
	return p, nil
}

// stop returns when nothing is written any more. It may be called again.
func (p *provisioner) stop() {
	p.cancel()
	p.queue.ShutDown()
	p.worker.Wait()
	p.factory.Shutdown()
}

func (p *provisioner) work(ctx context.Context) {
	for {
		key, shutdown := p.queue.Get()
		if shutdown {
			return
		}
		if err := p.sync(ctx, key); err != nil {
			p.queue.AddRateLimited(key)
		} else {
			p.queue.Forget(key)
		}
		p.queue.Done(key)
	}
}

func (p *provisioner) sync(ctx context.Context, key volumeKey) error {
	if key.Namespace == "" {
		pv, err := p.factory.Core().V1().PersistentVolumes().Lister().Get(key.Name)
		if err == nil && pv.Annotations[annotationProvisionedBy] == provisionerName && pv.Status.Phase == corev1.VolumeReleased {
			if err := p.removeFolder(pv); err != nil {
				return err
			}
			err = p.client.CoreV1().PersistentVolumes().Delete(ctx, key.Name, metav1.DeleteOptions{})
		}
		return ignore(err, apierrors.IsNotFound)
	}
	claim, err := p.factory.Core().V1().PersistentVolumeClaims().Lister().PersistentVolumeClaims(key.Namespace).Get(key.Name)
	if err != nil || claim.Spec.VolumeName != "" || claim.DeletionTimestamp != nil || claim.Annotations[annotationProvisioner] != provisionerName {
		return ignore(err, apierrors.IsNotFound)
	}
	volume := volumeFor(claim)
	if node := claim.Annotations[annotationSelectedNode]; node != "" && p.plane.hasOnlyRealNodes() {
		if err := p.makeFolder(volume, node); err != nil {
			return err
		}
	}
	_, err = p.client.CoreV1().PersistentVolumes().Create(ctx, volume, metav1.CreateOptions{})
	return ignore(err, apierrors.IsAlreadyExists)
}

// hasOnlyRealNodes reports whether all nodes are real. Simulated ones have no folders.
func (c *ControlPlane) hasOnlyRealNodes() bool { return c.options.Nodes < 0 }

// makeFolder makes the folder of a volume on a node, and the volume a local one: unlike hostPath,
// that gets the group of the pod (fsGroup).
func (p *provisioner) makeFolder(volume *corev1.PersistentVolume, node string) error {
	if err := os.MkdirAll(p.folderOf(node, volume.Name), 0o755); err != nil {
		return fmt.Errorf("making the folder of volume %s: %w", volume.Name, err)
	}
	volume.Spec.PersistentVolumeSource = corev1.PersistentVolumeSource{
		Local: &corev1.LocalVolumeSource{Path: filepath.Join(nodeLib, simulatedVolumes, volume.Name)},
	}
	volume.Spec.NodeAffinity = &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
		MatchExpressions: []corev1.NodeSelectorRequirement{{Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{node}}},
	}}}}
	return nil
}

// removeFolder removes the folder of a local volume, with what is in it.
func (p *provisioner) removeFolder(volume *corev1.PersistentVolume) error {
	if volume.Spec.Local == nil || volume.Spec.NodeAffinity == nil {
		return nil
	}
	node := volume.Spec.NodeAffinity.Required.NodeSelectorTerms[0].MatchExpressions[0].Values[0]
	if err := os.RemoveAll(p.folderOf(node, volume.Name)); err != nil {
		return fmt.Errorf("removing the folder of volume %s: %w", volume.Name, err)
	}
	return nil
}

func (p *provisioner) folderOf(node, volume string) string {
	return filepath.Join(p.plane.NodeFolder(node), NodeLib, simulatedVolumes, volume)
}

// volumeFor is the volume that a claim gets. Its name is the claim's for ever, so that
// it is made once.
func volumeFor(claim *corev1.PersistentVolumeClaim) *corev1.PersistentVolume {
	name := "pvc-" + string(claim.UID)
	return &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{annotationProvisionedBy: provisionerName}},
		Spec: corev1.PersistentVolumeSpec{
			Capacity:                      corev1.ResourceList{corev1.ResourceStorage: claim.Spec.Resources.Requests[corev1.ResourceStorage]},
			AccessModes:                   claim.Spec.AccessModes,
			VolumeMode:                    claim.Spec.VolumeMode,
			StorageClassName:              StorageClass,
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimDelete,
			PersistentVolumeSource:        corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: filepath.Join(nodeLib, simulatedVolumes, name)}},
			ClaimRef: &corev1.ObjectReference{
				APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID,
			},
		},
	}
}

func ignore(err error, expected func(error) bool) error {
	if expected(err) {
		return nil
	}
	return err
}
