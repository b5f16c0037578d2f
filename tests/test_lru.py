import threading

from phalanx.lru import LruCache


def test_what_was_used_longest_ago_goes():
    cache = LruCache(2)
    cache.put("a", 1)
    cache.put("b", 2)
    assert cache.get("a") == 1
    cache.put("c", 3)
    assert [cache.get(key) for key in "abc"] == [1, None, 3]


def test_weights():
    cache = LruCache(10, len)
    cache.put("a", "12345")
    cache.put("b", "1234")
    cache.put("a", "1")
    assert cache.weight == 5
    cache.put("c", "x" * 100)
    assert cache.values() == ["x" * 100]
    cache.clear()
    assert (len(cache), cache.weight) == (0, 0)


def test_of_size_zero():
    cache = LruCache(0)
    cache.put("a", 1)
    assert cache.get("a") is None


def test_many_threads():
    cache = LruCache(50)

    def use(start):
        for number in range(start, start + 2000):
            cache.put(number % 100, number)
            cache.get(number % 70)

    threads = [threading.Thread(target=use, args=(n * 7,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(cache) == cache.weight == 50
